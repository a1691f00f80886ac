"""A workload cut into stages: its blocks, where to cut them so that the stages do equally much, and each by itself.

A stage, or a block, alone on a device is what keeps the device busy in a step, without any waiting.
"""

import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from scalecard.benchmarks.training.strategy import CannotBe
from scalecard.hardware.devices import Device
from scalecard.hardware.failures import or_on_host
from scalecard.hardware.host import is_out_of_memory
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import flops, operations
from scalecard.measuring.proof import same_gradients
from scalecard.parallel.model_parallel import Given, StageAlone, UpdateAlone
from scalecard.records.record import Check
from scalecard.workloads import reference
from scalecard.workloads.meta import META, is_on_meta
from scalecard.workloads.nested import doubled, flipped, leaves, mapped, rows
from scalecard.workloads.recipe import OptimizerSettings, autocast_forward
from scalecard.workloads.reference import trainable
from scalecard.workloads.stage_cuts import Cuts, balanced, stages
from scalecard.workloads.workload import HOST, Workload


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
    """Whether a forward calls every block once: the parameters of one that is called twice are gathered twice.

    Of a model on the meta device also without data; if its forward looks at values, that is not known, and false.
    """
    model, called = workload.uncompiled.network(HOST, on_meta=True).eval(), Counter[int]()
    blocks = blocks_of(workload, model)
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
    return [max(one, 1e-3 * sum(counted) / len(counted)) for one in counted]


def crossing(workload: Workload, cuts: Cuts, sizes: tuple[int, ...], device: torch.device) -> int:
    """Bytes of what is handed from stage to stage in one forward of micro-batches of these sizes on such devices."""
    return sum(_handed_over(replace(workload, batch_size=1), cuts, device)) * sum(sizes)


@functools.cache
def _handed_over(workload: Workload, cuts: Cuts, device: torch.device) -> tuple[int, ...]:
    """Bytes of one sample that each stage but the last hands to the next one in a forward.

    On the device, whose autocast computes other operations in float32 than that of the host.
    """
    _, modules = cut(workload.uncompiled, cuts)
    value, found = workload.batch(1, device)[0], []
    for module in modules[:-1]:  # with gradients, as below
        value = module.to(device).eval()(value).detach()
        module.to(HOST)
        found.append(value.nbytes)
    return tuple(found)


@dataclass(frozen=True)
class CutWorkload:
    """A workload in stages that begin with the first block and with those of `cuts`, and one batch of it.

    The loss is the last stage's work. In a trial, nothing is `counting`.
    """

    workload: Workload
    cuts: Cuts
    counting: bool = True

    @property
    def num_stages(self) -> int:
        """How many devices it takes."""
        return len(self.cuts) + 1

    def of_size(self, batch_size: int) -> "CutWorkload":
        """The same with another batch."""
        return replace(self, workload=replace(self.workload, batch_size=batch_size))

    def stage(self, index: int) -> nn.Module:
        """A copy of one of the stages, in the host's memory."""
        return copy.deepcopy(_stages(replace(self.workload, batch_size=1), self.cuts)[index])

    def plain_stage(self, index: int, values: Given, *, recomputing: bool = False) -> tuple[nn.Module, Given]:
        """The stage, and what it is given, as the plain loop has them, which sees to the precision itself."""
        workload = self.workload.with_precision("float32") if recomputing else self.workload.as_reference
        plain = replace(self, workload=workload)
        return plain.stage(index), replace(values, loss=values.loss and plain.workload.loss)

    def crossing(self, stage: int, device: torch.device) -> int:
        """Bytes that a stage hands to the next one in a forward of the batch on such devices."""
        return self.workload.batch_size * _handed_over(replace(self.workload, batch_size=1), self.cuts, device)[stage]


@functools.lru_cache(maxsize=2)
def given(staged: CutWorkload, device: torch.device) -> Sequence[Given]:
    """What each stage gets, computed on a device, once for stages that are built one after another.

    It is kept on the host: the device's memory is for what is timed.
    """
    on_host = partial(mapped, partial(torch.Tensor.to, device=HOST))
    value, targets = staged.workload.batch(staged.workload.batch_size, device)
    found, plain = [on_host(value)], replace(staged, workload=staged.workload.uncompiled)
    for stage in range(staged.num_stages - 1):  # with gradients, or PyTorch fuses what then has other types
        value = plain.stage(stage).to(device)(value).detach()
        found.append(on_host(value))
    *first, last = found
    return [*map(Given, first), Given(last, on_host(targets), staged.workload.loss)]


@functools.lru_cache(maxsize=2)
def _stages(workload: Workload, cuts: Cuts) -> list[nn.Module]:
    """Those that are copied: the exact ones and those as timed, which are built in turns."""
    return cut(workload, cuts)[1]


def gradients(stage: int, device: Device, staged: CutWorkload, *, batches: int = 1, num_micro: int = 1) -> Subject:
    """Forward and backward of so many batches, each of micro-batches like this batch; gradients are dropped."""
    alone = _alone(stage, device, staged)

    def prove() -> Iterator[Check]:
        alone.run(1)
        device.synchronize()
        plain, exact = _both(_Plain(stage, staged, alone).slopes, device)
        yield same_gradients("gradients of the stage", alone.gradients(), plain, exact)

    each = {} if staged.workload.exact else {"forwards": 1.0, **plain_flops(stage, device.torch, staged)}
    counts = {name: batches * num_micro * value for name, value in each.items()}
    work = partial(alone.run, batches, num_micro=num_micro)
    return Subject(work=work, prove=prove, expected=counts, module=alone.stage)


def forwards(stage: int, device: Device, staged: CutWorkload, *, num_micro: int) -> Subject:
    """The forwards of one batch of micro-batches like this batch, with all that their backwards would need."""
    alone = _alone(stage, device, staged)

    def prove() -> Iterator[Check]:
        ours = alone.forward(1).result()
        device.synchronize()
        plain, exact = _both(_Plain(stage, staged, alone).output, device)
        yield same_gradients("output of the stage", [ours], plain, exact)

    each = {"forwards": 1}
    if isinstance(alone.given.inputs, Tensor):  # the rows of a dict are not seen
        each["samples"] = rows(alone.given.inputs)
    counts = {} if staged.workload.exact else {name: num_micro * value for name, value in each.items()}
    return Subject(work=partial(alone.forward, num_micro), prove=prove, expected=counts, module=alone.stage)


def update(module: nn.Module, device: Device, optimizer: OptimizerSettings) -> Subject:
    """The update of the parameters of a stage, or of the whole model."""
    alone = UpdateAlone(module, device, optimizer=optimizer)

    def prove() -> Iterator[Check]:
        plain = [p.detach().clone() for p in alone.parameters]
        exact = [p.double() for p in plain]
        for values in (plain, exact):  # which clips nothing: that takes the gradients of all stages
            reference.optimizer_step(replace(optimizer, clip=0.0), values)([torch.ones_like(value) for value in values])
        alone.run()
        device.synchronize()
        yield same_gradients("parameters after an update", alone.parameters, plain, exact)

    counts = optimizer.updates(alone.parameters)
    return Subject(work=alone.run, prove=prove, expected=counts, state=lambda: alone.parameters)


def _alone(stage: int, device: Device, staged: CutWorkload) -> StageAlone:
    return StageAlone(staged.stage(stage), given(staged, device.torch)[stage], device, needs_gradient=stage > 0)


def plain_flops(stage: int, device: torch.device, staged: CutWorkload) -> dict[str, float]:
    """The operations of a stage's forward and backward; nothing if they are not counted, or the device is too small."""
    if not staged.counting:
        return {}
    try:
        module, values = staged.plain_stage(stage, given(staged, device)[stage].to(device), recomputing=True)
        module.to(device).train()
        if stage:
            values.inputs.requires_grad_()

        def gradient() -> None:
            with reference.autocast(device, staged.workload.in_bf16):
                made = values.through(module)
            made.sum().backward()

        return operations(gradient, staged.workload.flop_counts)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    return {}


class _Plain:
    """A plain stage with what a stage alone is given, as it is or `exactly`: in float64.

    A model that cannot be in float64 gets its samples in the opposite order, if what it makes has a row for each.
    """

    def __init__(self, stage: int, staged: CutWorkload, alone: StageAlone) -> None:
        self.stage, self.staged, self.given, self.gradient = stage, staged, alone.given, alone.gradient
        made = self.given.targets if self.given.loss else self.gradient
        self.by_row = rows(self.given.inputs) == rows(made)

    def slopes(self, exactly: bool, place: torch.device) -> list[Tensor]:
        """The gradients of its parameters."""
        module, values, gradient = self._on(place, exactly)
        return list(torch.autograd.grad(self._forward(module, values, exactly), trainable(module), gradient))

    @torch.no_grad()
    def output(self, exactly: bool, place: torch.device) -> list[Tensor]:
        """The output, in the order in which the samples were given."""
        module, values, _ = self._on(place, exactly)
        found = self._forward(module, values, exactly)
        return [self._turned(found) if exactly and self.staged.workload.inexact else found]

    def _on(self, place: torch.device, exactly: bool) -> tuple[nn.Module, Given, Tensor]:
        (module, values), gradient = self.staged.plain_stage(self.stage, self.given), self.gradient
        if exactly and self.staged.workload.inexact:
            values, gradient = values.mapped(flipped) if self.by_row else values, self._turned(gradient)
        elif exactly:
            module, values, gradient = module.double(), values.mapped(doubled), doubled(gradient)
        return module.to(place), values.to(place), gradient.to(place)

    def _forward(self, module: nn.Module, values: Given, exactly: bool) -> Tensor:
        with reference.autocast(next(leaves(values.inputs)).device, self.staged.workload.in_bf16 and not exactly):
            return values.through(module)

    def _turned(self, output: Tensor) -> Tensor:
        """An output, or its gradient, in the opposite order; a loss has none."""
        return flipped(output) if self.by_row and not self.given.loss else output


def _both(plain: Callable[[bool, torch.device], list[Tensor]], device: Device) -> list[list[Tensor]]:
    """As it is timed, and exactly; the host computes what the device cannot hold."""
    return [or_on_host(partial(plain, exactly), device.torch) for exactly in (False, True)]
