"""bf16 in a workload's recipe: where it is used, what it is proven in, and that float32 is not passed off as it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from scalecard.benchmarks.training.pipelines import subject
from scalecard.benchmarks.training.strategy import References, Setting
from scalecard.benchmarks.training.validate import by_other_recipes, examined
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.experiments import strategies
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import counted, counting
from scalecard.parallel import sharded
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.records.strategies import OTHER_RECIPE
from scalecard.workloads import workload
from scalecard.workloads.recipe import Precision, Recipe
from scalecard.workloads.workload import HOST, Workload, built_in
from support.projects import ROOT
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def mine(name: str, precision: Precision, **values: int) -> Workload:
    return replace(built_in(name, seed=0, lr=0.1, batch_size=4, **values), recipe=Recipe("adamw", precision))


def wrong(made: Subject, device: Device) -> list[tuple[str, float]]:
    """Of what is proven: what is counted otherwise than expected, and what is expected."""
    assert all(check.passed for check in made.prove())
    found = counted(made, device.synchronize)
    return [(count.name, count.expected) for count in found if count.counted != count.expected]


def test_float32_passed_off_as_bf16_is_caught(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tolerance of bfloat16 lets it pass; the counted products do not."""
    with open_devices(machine, 1) as devices:
        build = partial(subject, ModelParallel, devices, References(HOST, 1), Setting(mine("toy", "bf16"), 1))
        assert wrong(build(), devices[0]) == []
        monkeypatch.setattr(workload, "autocast_forward", lambda module: module)
        assert wrong(build(), devices[0]) == [("float32 FLOPs", 0)]


def test_auto_is_float32_without_a_gpu() -> None:
    found = examined(mine("lenet", "auto"), HOST, 1, 1)
    assert (found.recipe.precision, found.recipe_axes) == ("float32", {})


def test_with_batch_normalisation_bf16_is_proven_in_eval_mode() -> None:
    assert [examined(mine("resnet18_eighth", each), HOST, 1, 1).frozen for each in ("float32", "bf16")] == [False, True]
    assert not examined(mine("lenet", "bf16"), HOST, 1, 1).frozen


def others(own: Workload) -> list[tuple[Precision, str, bool, str]]:
    """Precision, what is recomputed, whether it is proven in eval mode, and why it cannot be trained."""
    made = by_other_recipes(examined(own, HOST, 1, 1), HOST, ("float32", "bf16"), ("none", "blocks"))
    return [(one.recipe.precision, one.recipe.checkpointing, one.frozen, why) for one, why in made]


def test_each_recipe_is_proven_in_the_mode_that_it_needs() -> None:
    """With dropout in eval mode; with batch normalisation in bf16 alone."""
    dropping = Workload("encoder", f"{ROOT}/tests/benchmarks/training/of_others/encoder.py", "{}", 4, seed=0)
    assert others(dropping) == [
        ("float32", "blocks", True, ""),
        ("bf16", "none", True, ""),
        ("bf16", "blocks", True, ""),
    ]
    assert others(mine("resnet18_eighth", "bf16")) == [
        ("float32", "none", False, ""),
        ("float32", "blocks", False, ""),
        ("bf16", "blocks", True, ""),
    ]


def test_a_model_without_blocks_of_its_own_is_not_recomputed_by_another_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workload, "blocks", lambda self, model: [nn.Linear(2, 2)])
    (_, *again), (_, *inexact), _ = others(mine("toy", "float32"))
    assert (again[0], inexact[0]) == ("blocks", "none")
    assert again[-1].startswith("recipe.checkpointing = blocks: the model calls 0 of 0 blocks that it has; ")
    assert inexact[-1] == ""


def test_what_a_users_file_raises_by_another_recipe_costs_that_recipe_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def other_recipes(workload: Workload, *_: object) -> Iterator[tuple[Workload, str]]:
        yield workload, ""
        raise RuntimeError("blocks() knows no such model")

    monkeypatch.setattr(strategies, "by_other_recipes", other_recipes)
    spec = SimpleNamespace(precision=["float32"], checkpointing=["none", "blocks"])
    own = mine("toy", "float32")
    possible, (failed,) = strategies._other_recipes(own, HOST, spec)  # type: ignore[arg-type]
    assert (possible, failed.status, failed.metric) == ([own], "failed", OTHER_RECIPE["step_time"])
    assert failed.note == "RuntimeError: blocks() knows no such model"


def _dtypes(ctx: RankContext) -> tuple[list[str], float, float]:
    """Of each layer's output, in the order of the forward, then of each parameter's gradient; bytes sent, and expected.

    Parameters are gathered twice, those of batch normalisation as they are, and all gradients are reduced in float32.
    """
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    seen = []
    for layer in (model[0], model[1], model[3]):
        layer.register_forward_hook(lambda *args: seen.append(args[-1].dtype))
    whole, halved = (sharded.gathered_bytes(of, 2) for of in (model.parameters(), sharded.bf16_parameters(model)))
    sharded.sharded(model, [model[0], model[1]], init_device_mesh("cpu", (ctx.world_size,)), parameters=True, bf16=True)
    with counting() as tally:
        model(torch.ones(2, 1, 4, 4)).float().sum().backward()
    dtypes = [*map(str, seen), *(str(parameter.grad.dtype) for parameter in model.parameters())]
    return dtypes, tally.sums()["collective bytes"], 2 * (whole - halved / 2) + whole


@pytest.mark.usefixtures("forked_ranks")
def test_fsdp_computes_in_bfloat16_and_reduces_in_float32(machine: Machine) -> None:
    for found, sent, expected in launch(_dtypes, layout=Layout(2), machine=machine):
        assert found == ["torch.bfloat16"] * 3 + ["torch.float32"] * 6
        assert sent == expected


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.act = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), nn.ReLU()


def test_the_layers_of_a_list_are_the_blocks_that_are_recomputed() -> None:
    """Nobody calls the list itself."""
    model, own = Listed(), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert mine("lenet", "float32").wrappable_blocks(model) == list(model.layers)
    assert mine("lenet", "float32").wrappable_blocks(own) == list(own)


def test_what_normalises_batches_is_gathered_in_float32() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(16, 2))
    assert [parameter.numel() for parameter in sharded.bf16_parameters(model)] == [36, 4, 32, 2]


@pytest.mark.parametrize("name", ["lenet", "resnet50", "gpt"])
def test_our_losses_of_bfloat16_are_computed_in_float32(name: str) -> None:
    """As PyTorch's cross_entropy of bfloat16 alone is not, neither on a CPU nor, under autocast, on GPUs."""
    loss = mine(name, "bf16").module.loss
    scores, labels = torch.randn(8, 4, 5).bfloat16(), torch.randint(5, (8, 4))
    scores, labels = (scores, labels) if name == "gpt" else (scores[:, 0], labels[:, 0])
    found, wide = loss(scores, labels), loss(scores.float(), labels)
    assert (found.dtype, float(found)) == (torch.float32, float(wide))
    assert loss(scores.double(), labels).dtype == torch.float64
