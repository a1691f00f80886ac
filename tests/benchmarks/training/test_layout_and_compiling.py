"""Recipes that change how a step computes and not what: images channels last, and compiled blocks."""

import copy
from dataclasses import replace

import pytest
import torch
from scalecard.benchmarks.training import builders, strategy, validate
from scalecard.benchmarks.training.strategy import CannotBe, References, Setting
from scalecard.benchmarks.training.validate import NotAWorkload, recipe_problem
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.hardware.devices import GpuDevice
from scalecard.hardware.machine import probe
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import counted, counting
from scalecard.parallel import sharded
from scalecard.records import strategies as kinds
from scalecard.workloads import compiled
from scalecard.workloads.compiled import compile_blocks, compiled_code, empty_cache_of_code
from scalecard.workloads.recipe import Recipe, in_layout
from scalecard.workloads.workload import HOST, Workload, built_in
from torch import nn

needs_a_compiler = pytest.mark.skipif(
    bool(validate.no_compiler(HOST)), reason=validate.no_compiler(HOST) or "it is here"
)
LAID, COMPILED = Recipe("sgd", channels_last=True), Recipe("adamw", compile=True)


def mine(name: str, recipe: Recipe, **values: object) -> Workload:
    return replace(built_in(name, seed=0, lr=0.01, batch_size=4, **values), recipe=recipe)  # type: ignore[arg-type]


def test_images_and_weights_lie_channel_by_channel_and_vectors_as_they_are() -> None:
    """Images of one channel, too, whose layouts differ by their strides alone."""
    for channels in (1, 3):
        images = torch.rand(2, channels, 4, 5)
        laid = in_layout({"x": images, "y": torch.rand(2, 3)}, True)
        assert laid["x"].stride() == (20 * channels, 1, 5 * channels, channels)
        assert laid["y"].stride() == (3, 1)
        assert in_layout(images, False) is images
    model = mine("resnet18_eighth", LAID).network(HOST)
    weights = [p for p in model.parameters() if p.dim() == 4]
    assert all(weight.stride()[1] == 1 for weight in weights)
    assert mine("resnet18_eighth", Recipe("sgd")).network(HOST).conv1.weight.stride()[1] != 1  # type: ignore[union-attr, operator]


def test_convolutions_of_images_that_lie_otherwise_are_not_counted_as_channels_last() -> None:
    """One product of 2 x 3 channels, 9 taps and 16 pixels is 2 * 9 * 3 * 2 * 16 operations."""
    convolution, images = nn.Conv2d(3, 2, 3, padding=1), torch.rand(1, 3, 4, 4)
    found = []
    for laid in (True, False):
        with counting() as tally:
            convolution(in_layout(images, laid))
        found.append(tally.sums().get("channels-last FLOPs", 0.0))
    assert found == [2 * 9 * 3 * 2 * 16, 0.0]


@pytest.mark.parametrize(
    ("name", "recipe", "why"),
    [
        ("toy", LAID, "recipe.channels_last = true: the workload has no convolutions of images"),
        ("toy", Recipe(checkpointing="selective", compile=True), ""),
        ("resnet18_eighth", LAID, ""),
    ],
)
def test_what_a_model_cannot_follow_is_named_by_its_key(
    name: str, recipe: Recipe, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "no_compiler", lambda device: "")
    found = mine(name, recipe)
    problem = recipe_problem(found, found.as_reference.network(HOST), found.batch(2, HOST))
    assert problem.startswith(why)
    assert bool(problem) == bool(why)


def test_without_a_compiler_nothing_is_compiled_and_the_cause_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "no_compiler", lambda device: "no compiler is here")
    found = mine("toy", COMPILED)
    with pytest.raises(NotAWorkload, match=r"workloads.toy: recipe.compile = true: no compiler is here"):
        validate.examined(found, HOST, 1, 1)


def test_a_built_in_model_that_cannot_follow_its_recipe_is_named_where_it_is_measured() -> None:
    with pytest.raises(NotAWorkload, match=r"workloads.toy: recipe.channels_last = true: the workload has no conv"):
        validate.examined(mine("toy", LAID), HOST, 1, 1)


def test_replicas_are_not_compiled() -> None:
    device = GpuDevice.__new__(GpuDevice)
    device.torch = torch.device("cuda")
    with pytest.raises(CannotBe, match="compiled anew"):
        builders._nn_data_parallel([device], References(HOST, 1), Setting(mine("toy", COMPILED), 2))


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


@pytest.mark.parametrize("compiles", [True, False])
def test_a_block_in_which_no_compiled_code_runs_is_told(compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was never called; what is counted runs as it is written, and is no fault."""
    compiled._unless_counted.cache_clear()
    if not compiles:
        monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    else:
        monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: lambda module, inputs: module.forward)
    model = nn.Sequential(Halved(), Halved())
    compile_blocks(list(model))
    (code,) = compiled_code([model])  # of one class
    work = lambda: model(torch.ones(2, 3)).sum().backward()  # noqa: E731
    subject = Subject(work=work, prove=tuple, state=lambda: list(model.parameters()))
    checked = strategy.with_compilation_checked(subject, [code])
    assert [check.passed for check in checked.after()] == [False]
    counted(subject, lambda: None)
    assert code.calls == 0
    subject.work()
    assert code.calls == 2 * compiles
    assert [check.passed for check in checked.after()] == [compiles]
    compiled._unless_counted.cache_clear()


def _trained(ctx: RankContext) -> dict[str, tuple[bool, bool]]:
    """Of strategies that wrap, shard and cut the model: whether all was proven, and what was counted is right."""
    found = {}
    wanted = (kinds.DDP, kinds.FSDP_PARAMETERS, kinds.TORCH_GPIPE)
    with empty_cache_of_code(ctx):
        for one in builders.on_ranks(ctx):
            if one.kind in wanted and not one.is_part:
                at = Setting(mine("toy", COMPILED), 2, 2 if one.pipelined else 1)
                subject = one.build(References(ctx.device, 1), at)
                proven = [check.passed for check in subject.prove()]
                work = counted(subject, ctx.synchronize)
                subject.work()
                after = [check.passed for check in subject.after()]
                assert len(proven) == 1 + len(after) == 2
                found[one.kind.name] = all(proven + after), all(count.passed for count in work)
    return found


def kept(block: nn.Module) -> int:
    """Bytes that a forward keeps for its backward, besides parameters."""
    own, found = {p.untyped_storage().data_ptr() for p in block.parameters()}, dict[int, int]()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        made = block(torch.rand(2, 8, 16, requires_grad=True))
    made.sum().backward()
    return sum(size for place, size in found.items() if place not in own)


@pytest.mark.ranks
@needs_a_compiler
def test_compiled_blocks_keep_as_little_as_their_recipe_says() -> None:
    """Of blocks that run again nothing but their inputs, 2 x 8 x 16 values; selectively, some of their results."""
    found = dict[str, int]()
    for how in ("none", "selective", "blocks"):
        recipe = Recipe(checkpointing=how, compile=True)
        workload = mine("gpt", recipe, layers=1, width=16, heads=2, sequence=8, vocabulary=10)
        model = workload.network(HOST)
        found[how] = kept(workload.wrappable_blocks(model)[1])
    assert found["blocks"] == 4 * 2 * 8 * 16 < found["selective"] < found["none"]


@pytest.mark.ranks
@needs_a_compiler
def test_compiled_blocks_are_proven_counted_and_seen_to_run_on_two_ranks() -> None:
    found = launch(_trained, layout=Layout(2), machine=replace(probe(), num_devices=2))[0]
    assert found == dict.fromkeys(("DDP", "FSDP parameters", "torch gpipe"), (True, True))


def test_a_convolution_with_contiguous_weights_lays_what_it_makes_channels_last() -> None:
    """Also of images of one channel, whose layout alone does not tell; its gradients are those of the plain one."""
    images, plain = torch.rand(2, 1, 6, 6, dtype=torch.float64), nn.Conv2d(1, 4, 3, dtype=torch.float64)
    laid = copy.deepcopy(plain)
    sharded.lay_channels_last(laid)
    made = laid(images)
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert laid.weight.is_contiguous()
    made.sum().backward()
    plain(images).sum().backward()
    assert laid.weight.grad is not None
    assert plain.weight.grad is not None
    assert torch.allclose(laid.weight.grad, plain.weight.grad)
