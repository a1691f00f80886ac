"""What a step's memory is used for, on an allocator whose numbers are made up; and peaks, which only CUDA counts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject, Timing
from scalecard.measuring.memory import MemoryByKind, bytes_on, peak_memory
from support.simulated_clock import ready, variants
from torch import Tensor, nn
from torch.optim import optimizer as optimizers

HERE = torch.device("cpu")
MODEL = 60  # bytes of the 15 values of a layer from 4 to 3


class Step:
    """Forward, backward and update of a layer, in micro-batches."""

    def __init__(self, *, micro_batches: int = 1) -> None:
        self.layer, self.count = nn.Linear(4, 3), micro_batches
        self.optimizer = torch.optim.AdamW(self.layer.parameters())
        self.state: Callable[[], list[Tensor]] = lambda: list(self.layer.parameters())

    def __call__(self) -> None:
        for _ in range(self.count):
            self.layer(torch.ones(2, 4)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says what the allocator answers, one number after another: before the step, then at each backward."""

    def of(*numbers: int) -> None:
        answers: Iterator[int] = iter(numbers)
        monkeypatch.setattr(torch.accelerator, "memory_allocated", lambda device: next(answers))

    return of


def watched(step: Step, *, micro_batches: bool = False, peak: float = 4500) -> dict[str, float]:
    subject = Subject(work=step, prove=list, state=step.state, optimizers=[step.optimizer])
    memory = MemoryByKind(subject, [HERE], micro_batches=micro_batches)
    with memory.watching():
        subject.work()
    return {**memory.found(HERE, peak)}


def test_each_kind_and_the_rest_of_the_peak(allocated: Callable[..., None]) -> None:
    """Two states of 60 bytes each; 5000 bytes at the backward are 4000 more than at the beginning."""
    allocated(1000, 5000)
    assert watched(Step()) == {
        "parameters": MODEL,
        "gradients": MODEL,
        "optimizer": 2 * MODEL,
        "activations": 4000,
        "rest": 4500 - 4 * MODEL - 4000,
    }


def test_what_gradients_took_from_activations_leaves_no_rest(allocated: Callable[..., None]) -> None:
    allocated(1000, 5000)
    assert watched(Step(), peak=4100)["rest"] == 0


def test_the_most_that_micro_batches_of_a_pipeline_hold_counts_without_gradients(
    allocated: Callable[..., None],
) -> None:
    allocated(1000, 3000, 6000 + MODEL)
    assert watched(Step(micro_batches=2), micro_batches=True)["activations"] == 5000
    allocated(1000, 3000)
    assert watched(Step(micro_batches=2))["activations"] == 2000


def test_parameters_that_are_gathered_in_the_forward_are_no_activations(allocated: Callable[..., None]) -> None:
    """As FSDP2 has whole ones in the place of shards by then: 2000 bytes, in blocks of 512."""
    step, whole = Step(), nn.Parameter(torch.zeros(500))
    taken = list(step.layer.parameters())
    step.layer.register_forward_hook(lambda *_: setattr(step, "gathered", True))
    step.state = lambda: [whole] if vars(step).pop("gathered", False) else taken
    allocated(1000, 5000)
    assert watched(step)["activations"] == 4000 - 4 * 512


def test_every_stage_has_its_gradients_until_its_own_update(allocated: Callable[..., None]) -> None:
    """The second one's are there when those of the first are gone."""
    step, second = Step(), Step()
    both = [*step.layer.parameters(), *second.layer.parameters()]

    class Both(Step):
        def __call__(self) -> None:
            (step.layer(torch.ones(2, 4)).sum() + second.layer(torch.ones(2, 4)).sum()).backward()
            for each in (step, second):
                each.optimizer.step()
                each.optimizer.zero_grad()

    together = Both()
    together.state = lambda: both
    allocated(1000, 5000)
    assert watched(together)["gradients"] == 2 * MODEL


def test_what_no_hook_of_pytorch_sees_is_not_guessed(allocated: Callable[..., None]) -> None:
    step = Step()
    step.count = 0
    allocated(1000)
    assert watched(step) == {"parameters": MODEL, "optimizer": 0}


def test_nothing_is_left_behind(allocated: Callable[..., None]) -> None:
    """Also if the step fails."""
    backward, hooks = torch.autograd.backward, len(optimizers._global_optimizer_pre_hooks)
    allocated(1000, 5000)
    watched(Step())
    allocated(1000)
    with pytest.raises(StopIteration):
        watched(Step())  # the allocator does not answer any more
    assert torch.autograd.backward is backward
    assert len(optimizers._global_optimizer_pre_hooks) == hooks


def test_the_same_memory_counts_once_and_other_devices_do_not() -> None:
    tensor = torch.zeros(10)
    assert bytes_on(HERE, [tensor, tensor.detach(), torch.zeros(10, device="meta")]) == 40
    assert bytes_on(HERE, [tensor[:5], tensor[5:]]) == 40


def timing(devices: Sequence[Device]) -> Timing:
    (variant,) = variants(w=lambda: None)
    return Timing(variant=replace(variant, devices=devices), prepared=ready(lambda: None))


def test_on_a_cpu_it_is_skipped_once_for_the_model(machine: Machine) -> None:
    with open_devices(replace(machine, kind="cpu"), 2) as devices:
        (record,) = peak_memory([timing(devices), timing(devices)], workload="resnet50")
    assert (record.status, record.metric, record.unit) == ("skipped", "peak_memory", "B")
    assert record.case == {"workload": "resnet50"}


def test_a_variant_without_devices_is_left_out() -> None:
    assert list(peak_memory([timing([])], workload="toy")) == []
