"""Memory by formula against numbers worked out by hand: two layers, of which it is known what they save."""

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scalecard.benchmarks.training.predicted_memory import Prediction, predicted
from scalecard.benchmarks.training.strategy import Setting
from scalecard.records import strategies as kinds
from scalecard.records.strategies import Strategy
from scalecard.workloads.recipe import Recipe
from scalecard.workloads.workload import HOST, Workload, built_in

LAYERS = """
    import torch
    from torch import nn

    def model():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def batch(size, seed):
        return torch.randn(size, 4), torch.randn(size, 2)

    def loss(outputs, targets):
        return nn.functional.mse_loss(outputs, targets)

    def tensor_plan(model):
        return {"0": "column", "2": "row"}
"""
VALUES = 4 * 8 + 8 + 8 * 2 + 2  # of both layers
BATCH = 256


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    """With AdamW, which keeps two values for each."""
    return of(tmp_path, LAYERS)


def of(folder: Path, text: str) -> Workload:
    path = folder / f"{folder.name}.py"
    path.write_text(textwrap.dedent(text))
    return Workload(folder.name, str(path), "{}", BATCH, seed=0, recipe=Recipe("adamw"))


def on(workload: Workload, strategy: Strategy, devices: int, *, num_micro: int = 1, **where: int) -> Prediction:
    return predicted(strategy, Setting(workload, devices, num_micro, cuts=(2,)), HOST, **where)


def total(found: Prediction) -> float:
    return sum(found.by_kind.values())


def test_one_device_keeps_what_the_layers_save(workload: Workload) -> None:
    """The inputs were there; the hidden values are saved by the ReLU and by the second layer, which is the same memory;
    the loss saves the outputs, and is a block of its own."""
    found = on(workload, kinds.SINGLE, 1)
    assert (found.parameters, found.gradients, found.optimizer) == (4 * VALUES, 4 * VALUES, 8 * VALUES)
    assert found.activations == BATCH * 8 * 4 + BATCH * 2 * 4 + 512
    assert total(found) == 16 * VALUES + BATCH * 40 + 512


def test_in_bf16_half_as_much_and_rounded_copies(workload: Workload) -> None:
    """Of the inputs, and of the second layer's weights, which its gradient needs (a block); the loss is in float32."""
    found = on(workload.with_precision("bf16"), kinds.DDP, 1)
    assert found.activations == BATCH * 4 * 2 + BATCH * 8 * 2 + 512 + BATCH * 2 * 4 + 512
    assert (found.parameters, found.gradients, found.optimizer) == (4 * VALUES, 4 * VALUES, 8 * VALUES)


def test_blocks_that_run_again_keep_their_inputs_alone() -> None:
    """Four blocks and the head, whose inputs have 8 x 32 x 64 values; the loss keeps 8 x 32 x 100, itself and a sum."""
    values = {"layers": 4, "width": 64, "heads": 4, "sequence": 32, "vocabulary": 100}
    gpt = replace(built_in("gpt", seed=0, batch_size=8, **values), recipe=Recipe(checkpointing="blocks"))
    found = predicted(kinds.DDP, Setting(gpt, 1), HOST)
    assert found.activations == 5 * 4 * 8 * 32 * 64 + 4 * 8 * 32 * 100 + 2 * 512
    selective = replace(gpt, recipe=Recipe(checkpointing="selective"))
    whole = predicted(kinds.DDP, Setting(replace(gpt, recipe=Recipe()), 1), HOST)
    some = predicted(kinds.DDP, Setting(selective, 1), HOST)
    assert total(found) < total(some) < total(whole)
    alone = predicted(kinds.SINGLE, Setting(gpt, 1), HOST)
    assert total(alone) - total(found) == 4 * 8 * 32 * 100, "it still refers to the outputs"


SHARE = BATCH // 2 * 40 + 512  # what half of the batch keeps
# Of each layer one of two ranks has half of the rows: 16 and 4, 8 and 1 values. Of a plan it has half of the first
# layer, and of the second one half of the weights and all of the bias: 16 and 4, 8 and 2.
HALVES, PLANNED = 29, 30


@pytest.mark.parametrize(
    ("strategy", "own", "states", "activations"),
    [
        (kinds.DDP, VALUES, VALUES, SHARE),
        (kinds.ZERO_1, VALUES, VALUES / 2, SHARE),
        (kinds.FSDP_GRADIENTS, HALVES, HALVES, SHARE),
        (kinds.FSDP_PARAMETERS, HALVES, HALVES, SHARE),
        (kinds.FSDP_OFFLOAD, 0, 0, SHARE),
        (kinds.DATA_PARALLEL, VALUES, VALUES, None),
        (kinds.TENSOR_PARALLEL, PLANNED, PLANNED, None),
    ],
    ids=lambda one: one.name if isinstance(one, Strategy) else "",
)
def test_what_two_devices_have_each(
    strategy: Strategy, own: int, states: float, activations: int | None, workload: Workload
) -> None:
    found = on(workload, strategy, 2)
    assert (found.parameters, found.gradients, found.optimizer) == (4 * own, 4 * own, 8 * states)
    assert found.activations == activations
    assert bool(found.why_not) is (activations is None)


def test_replicas_of_divided_layers_divide_them_again(workload: Workload) -> None:
    """2 x 4 and 2 of the first layer, 1 x 4 and 1 of the second: 15 values."""
    assert on(workload, kinds.DATA_X_TENSOR, 4, replicas=2).parameters == 60


def test_micro_batches_of_one_device_are_forwarded_one_after_another(workload: Workload) -> None:
    accumulating = replace(workload, recipe=replace(workload.recipe, accumulate=2))
    assert on(accumulating, kinds.SINGLE, 1, num_micro=2).activations == SHARE


FIRST, SECOND = 40, 18  # values of the two stages


@pytest.mark.parametrize(
    ("strategy", "num_micro", "first", "second"),
    [
        # The first stage keeps the hidden values; the second one a copy of them, the outputs, and a loss each time.
        (kinds.MODEL_PARALLEL, 1, BATCH * 32, BATCH * 40 + 512),
        (kinds.OUR_GPIPE, 4, BATCH * 32, BATCH * 40 + 4 * 512),
        (kinds.TORCH_GPIPE, 4, BATCH * 32, BATCH * 40 + 4 * 512),
        # Of four micro-batches two wait at the first stage, and one at the second.
        (kinds.OUR_1F1B, 4, BATCH // 2 * 32, BATCH // 4 * 40 + 512),
        (kinds.TORCH_1F1B, 4, BATCH // 2 * 32, BATCH // 4 * 40 + 512),
    ],
    ids=lambda one: one.name if isinstance(one, Strategy) else "",
)
def test_either_stage_of_two(strategy: Strategy, num_micro: int, first: int, second: int, workload: Workload) -> None:
    for place, values, activations in ((0, FIRST, first), (1, SECOND, second)):
        found = on(workload, strategy, 2, num_micro=num_micro, place=place)
        assert (found.parameters, found.gradients, found.optimizer) == (4 * values, 4 * values, 8 * values)
        assert found.activations == activations


def test_replicas_of_a_pipeline_share_the_batch(workload: Workload) -> None:
    """Of four devices the third has the first stage of the second replica."""
    found = on(workload, kinds.DATA_X_PIPELINE, 4, num_micro=4, replicas=2, place=2)
    assert (found.parameters, found.activations) == (4 * FIRST, BATCH // 4 * 32)


def test_interleaved_stages_are_two_on_each_device(tmp_path: Path) -> None:
    """Four layers of 20 values; the first device has the first and the third."""
    deep = of(
        tmp_path, LAYERS.replace("nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)", "*(nn.Linear(4, 4) for _ in range(4))")
    )
    found = predicted(kinds.TORCH_INTERLEAVED, Setting(deep, 2, 4, cuts=(1, 2, 3)), HOST)
    assert (found.parameters, found.activations) == (2 * 4 * 20, None)
    assert "interleaved" in found.why_not


def test_a_forward_that_needs_values_is_not_predicted_and_says_so(tmp_path: Path) -> None:
    looks = LAYERS.replace("return nn.functional", "assert outputs.sum().item() > -1e9\n        return nn.functional")
    found = on(of(tmp_path, looks), kinds.DDP, 2)
    assert found.by_kind == {"parameters": 4 * VALUES, "gradients": 4 * VALUES, "optimizer": 8 * VALUES}
    assert "tensors without data" in found.why_not


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_it_is_what_autograd_saves(precision: str) -> None:
    """Of a transformer, by PyTorch's own hooks, on real tensors: besides there is the loss, in a block."""
    values = {"layers": 2, "width": 64, "heads": 4, "sequence": 32, "vocabulary": 128}
    gpt = built_in("gpt", seed=0, batch_size=8, **values)
    gpt = replace(gpt, recipe=replace(gpt.recipe, precision=precision))  # type: ignore[arg-type]
    model, (inputs, targets) = gpt.network(HOST), gpt.batch(8, HOST)
    known = {each.untyped_storage().data_ptr() for each in (*model.parameters(), inputs, targets)}
    saved = dict[int, int]()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = -(-storage.nbytes() // 512) * 512
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        gpt.loss(model(inputs), targets)
    found = predicted(kinds.DDP, Setting(gpt, 1), HOST)
    assert found.activations == sum(saved.values()) + 512
