"""Which devices stand beside each other as unequal ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from scalecard.hardware import host, unequal_devices
from scalecard.hardware.devices import CpuDevice
from scalecard.hardware.machine import Machine
from scalecard.hardware.unequal_devices import open_pairs, unequal_cores


@pytest.mark.parametrize(("cores", "split"), [(2, (1, 1)), (3, (2, 1)), (4, (3, 1)), (8, (6, 2)), (64, (48, 16))])
def test_cores_are_split_about_three_to_one(cores: int, split: tuple[int, int]) -> None:
    assert unequal_cores(cores) == split


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of every worker that is opened; they get one thread, however many cores are pretended."""
    asked: list[int] = []

    def opened(index: int, num_threads: int) -> CpuDevice:
        asked.append(num_threads)
        return CpuDevice(index, 1)

    monkeypatch.setattr(unequal_devices.devices, "CpuDevice", opened)
    return asked


def test_three_cores_make_unequal_workers(machine: Machine, threads: list[int]) -> None:
    with open_pairs(replace(machine, kind="cpu", gpus=[], num_devices=3, cores=3)) as (pair,):
        assert (pair.names, pair.slowed, threads) == (("2 cores", "1 core"), 1, [2, 1])
        assert str(pair) == "2 cores and 1 core"


def test_of_two_cores_one_does_its_share_three_times_and_says_so(machine: Machine, threads: list[int]) -> None:
    with open_pairs(replace(machine, kind="cpu", gpus=[], num_devices=2, cores=2)) as (pair,):
        assert (pair.names, pair.slowed, threads) == (("1 core", "1 core, slowed 3x"), 3, [1, 1])


@pytest.mark.parametrize("few", [{"num_devices": 1, "cores": 4}, {"num_devices": 2, "cores": 1}])
def test_one_device_makes_no_pair(machine: Machine, few: dict[str, int]) -> None:
    with open_pairs(replace(machine, kind="cpu", gpus=[], **few)) as pairs:
        assert pairs == []


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, threads: list[int]) -> Callable[..., Any]:
    """Pretended GPUs with their indices, on a host with eight cores."""
    monkeypatch.setattr(unequal_devices.devices, "GpuDevice", lambda device: CpuDevice(device.index, 1))
    monkeypatch.setattr(host, "usable_cores", lambda: 8)
    return lambda machine, *names: replace(machine, kind="cuda", gpus=list(names), num_devices=len(names))


def test_a_gpu_stands_beside_all_cores_but_the_one_that_launches(
    machine: Machine, gpus: Callable[..., Any], threads: list[int]
) -> None:
    with open_pairs(gpus(machine, "H100", "H100")) as (pair,):
        assert (pair.names, pair.slowed) == (("GPU 0", "CPU"), 1)
        assert [device.index for device in pair.devices] == [0, 2], "told apart from every GPU"
        assert threads == [7]


def test_a_gpu_of_another_model_is_a_pair_too(machine: Machine, gpus: Callable[..., Any]) -> None:
    with open_pairs(gpus(machine, "H100", "H100", "A100", "T4")) as (_, pair):
        assert pair.names == ("GPU 0 (H100)", "GPU 2 (A100)")
        assert [device.index for device in pair.devices] == [0, 2]
    mixed = gpus(machine, "H100", "A100")
    with open_pairs(replace(mixed, num_devices=1)) as pairs:
        assert len(pairs) == 1, "devices: 1 leaves the second one out"


def test_workers_are_closed_afterwards(machine: Machine) -> None:
    with open_pairs(replace(machine, kind="cpu", gpus=[], num_devices=2, cores=2)) as (pair,):
        assert pair.devices[1].call(torch.get_num_threads) == 1
    for device in pair.devices:
        with pytest.raises(RuntimeError, match="shutdown"):
            device.submit(int)
