"""A stage of a model that is cut, or a block, alone on a device: what keeps it busy in a step, without any waiting."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from scalecard.benchmarks.training.cut_model import CutWorkload, given
from scalecard.hardware.devices import Device
from scalecard.hardware.failures import or_on_host
from scalecard.hardware.host import is_out_of_memory
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import flops
from scalecard.measuring.proof import same_gradients
from scalecard.parallel.model_parallel import Given, StageAlone, UpdateAlone
from scalecard.records.record import Check
from scalecard.workloads.nested import doubled, flipped, rows
from scalecard.workloads.reference import trainable


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


def update(stage: int, device: Device, staged: CutWorkload) -> Subject:
    """The update of the stage's parameters."""
    alone = UpdateAlone(staged.stage(stage), device, lr=staged.workload.lr)

    def prove() -> Iterator[Check]:
        before = [p.detach().clone() for p in alone.parameters]
        alone.run()
        device.synchronize()
        plain, exact = [p - staged.workload.lr for p in before], [p.double() - staged.workload.lr for p in before]
        yield same_gradients("parameters after an update", alone.parameters, plain, exact)

    return Subject(work=alone.run, prove=prove, expected={"updates": 1}, state=lambda: alone.parameters)


def _alone(stage: int, device: Device, staged: CutWorkload) -> StageAlone:
    return StageAlone(staged.stage(stage), given(staged, device.torch)[stage], device, needs_gradient=stage > 0)


def plain_flops(stage: int, device: torch.device, staged: CutWorkload) -> dict[str, float]:
    """The operations of a stage's forward and backward; nothing if they are not counted, or the device is too small."""
    try:
        step = staged.plain_step(stage, device)
        return {"FLOPs": flops(step)} if step else {}
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    return {}


class _Plain:
    """A plain stage with what a stage alone is given, as it is or `exactly`: in float64.

    A model that cannot be in float64 gets its samples in the opposite order, if what it makes has a row for each.
    """

    def __init__(self, stage: int, staged: CutWorkload, alone: StageAlone) -> None:
        self.stage, self.workload, self.given, self.gradient = stage, staged, alone.given, alone.gradient
        made = self.given.targets if self.given.loss else self.gradient
        self.by_row = rows(self.given.inputs) == rows(made)

    def slopes(self, exactly: bool, place: torch.device) -> list[Tensor]:
        """The gradients of its parameters."""
        module, values, gradient = self._on(place, exactly=exactly)
        return list(torch.autograd.grad(values.through(module), trainable(module), gradient))

    @torch.no_grad()
    def output(self, exactly: bool, place: torch.device) -> list[Tensor]:
        """The output, in the order in which the samples were given."""
        module, values, _ = self._on(place, exactly=exactly)
        found = values.through(module)
        return [self._turned(found) if exactly and self.workload.workload.inexact else found]

    def _on(self, place: torch.device, *, exactly: bool) -> tuple[nn.Module, Given, Tensor]:
        module, values, gradient = self.workload.stage(self.stage), self.given, self.gradient
        if exactly and self.workload.workload.inexact:
            values, gradient = values.mapped(flipped) if self.by_row else values, self._turned(gradient)
        elif exactly:
            module, values, gradient = module.double(), values.mapped(doubled), doubled(gradient)
        return module.to(place), values.to(place), gradient.to(place)

    def _turned(self, output: Tensor) -> Tensor:
        """An output, or its gradient, in the opposite order; a loss has none."""
        return flipped(output) if self.by_row and not self.given.loss else output


def _both(plain: Callable[[bool, torch.device], list[Tensor]], device: Device) -> list[list[Tensor]]:
    """As it is timed, and exactly; the host computes what the device cannot hold."""
    return [or_on_host(partial(plain, exactly), device.torch) for exactly in (False, True)]
