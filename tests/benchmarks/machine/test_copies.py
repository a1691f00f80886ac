"""Where the two ends of a copy lie."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from scalecard import experiments
from scalecard.benchmarks.machine import copies
from scalecard.experiments import copy_cost
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import Machine
from support.blocks import smoke_block


def test_only_the_hosts_end_of_a_copy_is_pinned(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch refuses to pin what is on a GPU, and the case of a copy says `pinned` of both of its ends."""
    pinned, make = list[int](), torch.empty

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(len(tensor))
        return tensor

    def make_empty(size: int, *, pin_memory: bool, **options: Any) -> torch.Tensor:
        return pin(make(size, **options)) if pin_memory else make(size, **options)

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch, "empty", make_empty)
    with open_devices(machine, 1) as [device]:
        copies.filled(3, "pinned", device, seed=0)
        copies.empty(3, "pinned", device)
        assert pinned == []
        copies.filled(4, "pinned", None, seed=0)
        copies.empty(5, "pinned", None)
        copies.filled(6, "pageable", None, seed=0)
        copies.empty(6, "pageable", None)
    assert pinned == [4, 5]


class Sockets:
    """Two NUMA nodes with a GPU each, and a host allocator that hands out again what was given back last."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now: tuple[int, ...] = (0, 1)
        self.given_back = list[tuple[int, ...]]()
        self.used = list[tuple[int, ...]]()
        patch.setattr(torch._C, "_host_emptyCache", self.given_back.clear)
        patch.setattr(torch.Tensor, "pin_memory", lambda tensor: self.pin(tensor))
        patch.setattr(torch, "randint", lambda low, high, size, **options: torch.zeros(size, dtype=torch.uint8))
        patch.setattr(torch, "empty", lambda size, pin_memory, **options: self.pin(torch.zeros(size)))
        patch.setattr(torch, "Generator", lambda device: self)

    def manual_seed(self, seed: int) -> "Sockets":
        return self

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        self.used.append(self.given_back.pop() if self.given_back else self.now)
        return tensor

    def give_back(self) -> None:
        self.given_back += self.used
        self.used = []

    @contextmanager
    def near(self, indices: Sequence[int]) -> Iterator[None]:
        before, self.now = self.now, tuple(indices)
        yield
        self.now = before


def test_pinned_memory_lies_next_to_the_gpu_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the second case of a size, whose memory PyTorch's allocator has from the first one."""
    sockets, devices = Sockets(monkeypatch), [Gpu(0), Gpu(1)]
    for device in devices:
        with sockets.near([device.index]):
            copies.filled(8, "pinned", None, seed=0)
        assert sockets.used == [(device.index,)]
        sockets.give_back()


def test_copy_cost_allocates_next_to_the_one_gpu_that_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may run next to all of them."""
    sockets, gpu = Sockets(monkeypatch), Gpu(1)
    where = list[tuple[int, ...]]()
    monkeypatch.setattr(copy_cost, "near", sockets.near)
    monkeypatch.setattr(copy_cost, "time_rounds", lambda variants, **options: where.append(sockets.now) or [])
    spec: Any = experiments.build("copy_cost", smoke_block("copy_cost"))
    to_device: Any = (None, gpu)
    assert list(copy_cost._matrix_point(spec, {"bytes": 8}, to_device, gpu)) == []
    assert {*sockets.used, *where} == {(1,)}
    assert sockets.now == (0, 1)


def test_only_the_first_pair_has_all_sizes_and_every_pair_the_largest(machine: Machine) -> None:
    """Which reveals a bad link; a sweep between each pair of eight would be more than all else together."""
    spec: Any = experiments.build("copy_cost", smoke_block("copy_cost", bytes=[8, 16, 32]))
    gpus: Any = [Gpu(index) for index in range(4)]
    ends = list(copy_cost._ends(replace(machine, kind="cuda", num_devices=4), gpus))
    assert len(ends) == 3 + 4 * 3
    swept = [pair for pair in ends if copy_cost._sizes(spec, pair) == spec.bytes]
    zero, one, *_ = gpus
    assert swept == [(None, zero), (zero, None), (zero, zero), (zero, one), (one, zero)]
    assert all(copy_cost._sizes(spec, pair) == [32] for pair in ends if pair not in swept)


class Gpu:
    """Only an index; tensors of it lie in the host's memory."""

    def __init__(self, index: int) -> None:
        self.index, self.torch = index, torch.device("cuda", index)
