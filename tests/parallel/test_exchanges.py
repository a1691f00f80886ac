"""Exchanges between the devices of one process, by hand: three devices, seven channels, a batch of two."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from scalecard.hardware.devices import Device, Task, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.counting import counting
from scalecard.parallel import tensor_parallel
from scalecard.parallel.tensor_parallel import COPY, GATHER, KEEP, REDUCE, SPLIT, Route, Value
from torch import Tensor

WHOLE = torch.arange(14.0).view(2, 7)
SLICES = [WHOLE[:, :3], WHOLE[:, 3:5], WHOLE[:, 5:]]  # the first of three devices has one channel more
PARTS = [WHOLE, 10 * WHOLE, 100 * WHOLE]
A = WHOLE.nbytes


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 3) as opened:
        yield opened


def through(devices: Sequence[Device], route: Route, tensors: Sequence[Tensor], *, back: bool) -> list[Tensor]:
    """What each device has afterwards; the tensor is the second of two that its Task has made."""
    tasks = [
        device.submit(lambda x: [torch.zeros(1), x], tensor) for device, tensor in zip(devices, tensors, strict=True)
    ]
    exchange = tensor_parallel.backward if back else tensor_parallel.forward
    made = exchange(devices, route, Value(tasks, 1))
    return [task.result()[made.at] for task in made.tasks]


# A route, whether backward, what goes in, what comes out on each device, and what all of them receive.
CASES = [
    (KEEP, False, PARTS, PARTS, 0),
    (KEEP, True, PARTS, PARTS, 0),
    (COPY, False, [WHOLE] * 3, [WHOLE] * 3, 0),
    (COPY, True, PARTS, [111 * WHOLE] * 3, 2 * 2 * A),
    (REDUCE, False, PARTS, [111 * WHOLE] * 3, 2 * 2 * A),
    (REDUCE, True, [WHOLE] * 3, [WHOLE] * 3, 0),
    (GATHER, False, SLICES, [WHOLE] * 3, 2 * A),
    (GATHER, True, [WHOLE] * 3, SLICES, 0),
    (SPLIT, False, [WHOLE] * 3, SLICES, 0),
    (SPLIT, True, SLICES, [WHOLE] * 3, 2 * A),
    (GATHER + COPY, False, SLICES, [WHOLE] * 3, 2 * A),
    (GATHER + COPY, True, PARTS, [111 * part for part in SLICES], 2 * 2 * A),
]


@pytest.mark.parametrize(("route", "back", "before", "after", "received"), CASES)
def test_what_an_exchange_makes_and_moves(
    devices: list[Device], route: Route, back: bool, before: list[Tensor], after: list[Tensor], received: int
) -> None:
    with counting() as tally:
        found = through(devices, route, before, back=back)
    assert [tensor.tolist() for tensor in found] == [tensor.tolist() for tensor in after]
    assert tally.sums()["received bytes"] == received


def test_every_device_of_an_all_reduce_holds_the_same_bits(devices: list[Device]) -> None:
    """Sums in another order on each device would differ in their last bits."""
    parts = [torch.randn(5, 64) * 10.0**power for power in (0, 4, 8)]
    first, *others = through(devices, REDUCE, parts, back=False)
    assert all(torch.equal(first, other) for other in others)
    assert torch.equal(first, parts[0] + parts[1] + parts[2])


def test_what_was_exchanged_is_left_as_it_was(devices: list[Device]) -> None:
    parts = [part.clone() for part in PARTS]
    through(devices, REDUCE, parts, back=False)
    assert all(torch.equal(part, before) for part, before in zip(parts, PARTS, strict=True))


def test_one_device_has_all_of_it(devices: list[Device]) -> None:
    value = Value([Task([WHOLE])])
    for route in (COPY, REDUCE, GATHER, SPLIT):
        for exchange in (tensor_parallel.forward, tensor_parallel.backward):
            (task,) = exchange(devices[:1], route, value).tasks
            assert torch.equal(task.result()[0], WHOLE)
