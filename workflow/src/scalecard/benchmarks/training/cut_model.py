"""A workload cut into stages: its blocks, where to cut so that the stages do equally much, and textbooks' ResNet-50.

On machines without GPUs a ResNet-26 of a quarter of the width takes its place: fewer of the same blocks, narrower.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Literal

import torch
from torch import Tensor, nn

from scalecard.benchmarks.training.strategy import CannotBe
from scalecard.measuring.case_variant import Timing
from scalecard.measuring.counting import flops
from scalecard.measuring.shared_decisions import decided
from scalecard.measuring.spec import Common, Positive, Rate
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.workloads.meta import META, is_on_meta
from scalecard.workloads.recipe import autocast_forward
from scalecard.workloads.reference import trainable
from scalecard.workloads.stage_cuts import Cuts, balanced, stages
from scalecard.workloads.workload import HOST, Workload, built_in

Model = Literal["resnet50", "resnet26_quarter"]
# In each layer.
BOTTLENECKS: Mapping[str, tuple[int, ...]] = {"resnet50": (3, 4, 6, 3), "resnet26_quarter": (2, 2, 2, 2)}
TEXTBOOK, BALANCED = "after layer2", "balanced"  # cuts
RECOMPUTES = (
    "its forward checkpoints its blocks, which stages would leave out: checkpoint within the blocks, or set"
    " recipe.checkpointing"
)


def cut(workload: Workload, cuts: Cuts) -> tuple[nn.Module, list[nn.Module]]:
    """The model, and the same in stages that begin with the first block and with those of `cuts`.

    It is built on the host, since one device may not hold all of it. CannotBe says why it cannot be cut.
    """
    model = workload.network(HOST)
    blocks = blocks_of(workload, model)
    made: list[nn.Module] = [nn.Sequential(*(blocks[index] for index in span)) for span in stages(len(blocks), cuts)]
    if not all(trainable(stage) for stage in made):
        raise CannotBe(f"cut into {len(made)} stages, one of them has no parameter that is trained")
    return model, [autocast_forward(stage) for stage in made] if workload.in_bf16 else made


def blocks_of(workload: Workload, model: nn.Module) -> list[nn.Module]:
    """The workload's own blocks or, without blocks(model), the model's children; CannotBe if they are not the model."""
    given, blocks = hasattr(workload.module, "blocks"), workload.blocks(model)
    owned = [id(parameter) for block in blocks for parameter in block.parameters()]
    if len(owned) != len(set(owned)):
        raise CannotBe("two of its blocks share a parameter")
    if set(owned) != {id(parameter) for parameter in model.parameters()}:
        raise CannotBe(f"{'blocks(model) does' if given else 'its children do'} not have all of its parameters")
    return blocks


@functools.cache
def calls_each_once(workload: Workload) -> bool:
    """Whether a forward calls every block that is sharded once: what is called twice is gathered twice.

    Of a model on the meta device also without data; if its forward looks at values, that is not known, and false.
    """
    model, called = workload.uncompiled.network(HOST, on_meta=True).eval(), Counter[int]()
    blocks = workload.wrappable_blocks(model)
    for number, block in enumerate(blocks):
        block.register_forward_pre_hook(lambda *_, number=number: called.update([number]))
    without_data = is_on_meta(model)
    try:
        with torch.no_grad():
            model(workload.batch(1, META if without_data else HOST)[0])
    except (RuntimeError, TypeError):
        if not without_data:
            raise
        return False
    return all(called[number] == 1 for number in range(len(blocks)))


def balanced_cuts(workload: Workload, num_stages: int) -> Cuts:
    """Cuts into so many stages whose largest has as few operations as possible; CannotBe if there are fewer blocks."""
    found = _operations(replace(workload.as_reference, batch_size=1))
    if len(found) < num_stages:
        raise CannotBe(f"{len(found)} blocks do not make {num_stages} stages")
    return balanced(found, num_stages)


@functools.cache
def _operations(workload: Workload) -> list[float]:
    """FLOPs of one sample's forward in each block, on the CPU; CannotBe if the blocks together are not the model.

    Every block counts at least a little, so that blocks without products are divided as well.
    """
    model = workload.network(HOST).eval()
    blocks, (inputs, _) = blocks_of(workload, model), workload.batch(1, HOST)
    value = inputs

    def run(block: nn.Module) -> None:
        nonlocal value
        value = block(value)
        if not isinstance(value, Tensor):
            raise TypeError(f"a block returns a {type(value).__name__}, not one tensor")

    named = "blocks(model)" if hasattr(workload.module, "blocks") else "its children (it has no blocks(model))"
    unlike = f"{named}, one after another, do not compute what the model does"
    try:  # with gradients, or PyTorch fuses what it then does not count
        counted, whole = [flops(partial(run, block)) for block in blocks], model(inputs)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CannotBe(f"{unlike}: {type(error).__name__}: {str(error).splitlines()[0]}") from error
    tensors = isinstance(value, Tensor) and isinstance(whole, Tensor)
    if not (tensors and value.shape == whole.shape and torch.allclose(value, whole)):
        raise CannotBe(unlike)
    if flops(lambda: value.sum().backward()) != flops(lambda: whole.sum().backward()):
        raise CannotBe(RECOMPUTES)
    return [max(one, 1e-3 * sum(counted) / len(counted)) for one in counted]


def crossing(workload: Workload, cuts: Cuts, samples: int, device: torch.device) -> list[int]:
    """Bytes that each stage but the last hands to the next one in a forward of so many samples on such devices."""
    return [samples * each for each in _handed_over(replace(workload, batch_size=1), cuts, device)]


@functools.cache
def _handed_over(workload: Workload, cuts: Cuts, device: torch.device) -> tuple[int, ...]:
    """Bytes of one sample that each stage but the last hands to the next one in a forward.

    On the device, whose autocast computes other operations in float32 than that of the host.
    """
    _, modules = cut(workload.uncompiled, cuts)
    value, found = workload.batch(1, device)[0], []
    for module in modules[:-1]:  # with gradients, or PyTorch fuses what then has other types
        value = module.to(device).eval()(value).detach()
        module.to(HOST)
        found.append(value.nbytes)
    return tuple(found)


def num_blocks(model: str) -> int:
    """Its stem, the bottlenecks, and its head."""
    return sum(BOTTLENECKS[model]) + 2


def after(model: str, *layers: int) -> Cuts:
    """Cuts after these layers, counted from 1; block 0, the stem, comes before the first."""
    return tuple(sum(BOTTLENECKS[model][:layer]) + 1 for layer in layers)


@dataclass(frozen=True, kw_only=True)
class OfResNet50(Common):
    """The values of experiments that cut it; of its small batch, with which equality is proven, too."""

    model: Model
    batch_size: Positive
    image_size: Positive
    num_classes: Positive
    lr: Rate
    check_batch_size: Positive
    check_image_size: Positive
    check_steps: Positive


def resnet50(spec: OfResNet50, *, exact: bool = False) -> Workload:
    """Random images and one-hot vectors, whose mean squared error is the loss; `exact`: few and small, in float64."""
    size, image_size = spec.batch_size, spec.image_size
    if exact:
        size, image_size = spec.check_batch_size, spec.check_image_size
    values = {"image_size": image_size, "num_classes": spec.num_classes, "one_hot": True}
    return built_in(spec.model, seed=spec.seed, lr=spec.lr, exact=exact, batch_size=size, **values)


def chosen_cuts(model: str, blocks: Callable[[], Sequence[Timing]], counts: Sequence[int]) -> list[tuple[str, Cuts]]:
    """The textbook's cut for two devices, then the balanced one for each of these numbers of devices, if it is known.

    That is the one whose slowest stage is fastest. It is found by the times of the blocks in the run's first process:
    they scatter, and processes that cut elsewhere would not measure the same case.
    """
    if not counts:
        return []

    def decide() -> list[Cuts]:
        timings = blocks()
        if not all(timing.completion for timing in timings):  # out of memory, or of time
            return []
        times = [median(timing.completion) for timing in timings]
        return [balanced(times, count) for count in counts if count <= len(times)]

    return [(TEXTBOOK, after(model, 2)), *((BALANCED, tuple(cuts)) for cuts in decided("cuts", decide))]


def not_cut(model: str, blocks: Sequence[Timing], counts: Sequence[int], case: Case) -> Iterator[Record]:
    """What could not be balanced, and why: a block without a time, or fewer blocks than devices."""
    missing = next((timing.record("step_time") for timing in blocks if not timing.completion), None)
    for count in counts:
        own: Case = {**case, "devices": count, "cut": BALANCED}
        if missing:
            yield replace(missing, case=own, note=f"a block has no time: {missing.note}")
        elif count > num_blocks(model):
            yield Record.skipped(own, f"{num_blocks(model)} blocks do not make {count} stages", metric="step_time")


def with_blocks(record: Record, cuts: Cuts) -> Record:
    """A record of a cut model, with the number of blocks of each stage."""
    return replace(record, blocks=[len(span) for span in stages(num_blocks(record.text("workload")), cuts)])
