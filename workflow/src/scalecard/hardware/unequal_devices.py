"""Pairs of devices that are not equally fast: a GPU and the host's CPU, GPUs of two models, or unequal CPU workers.

with GPUs              GPU 0 | every core but one, which launches the GPU's work
                       GPU 0 | the first GPU of another model, if there is one
three cores or more    three quarters of the cores | one quarter
two cores              one core | one core that does its share three times
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from scalecard.hardware import devices, host
from scalecard.hardware.machine import Machine
from scalecard.hardware.vendors.runtimes import float32_is_float32

REPEATS = 3  # of the share of a worker that is slower because it does more


@dataclass(frozen=True)
class Pair:
    """Two devices with their names. The second does its share `slowed` times: more than once, it plays a slower one."""

    names: tuple[str, str]
    devices: list[devices.Device]
    slowed: int = 1

    def __str__(self) -> str:
        return " and ".join(self.names)


def unequal_cores(cores: int) -> tuple[int, int]:
    """About three to one, for two workers; one each where there are only two."""
    fewer = max(1, cores // 4)
    return max(1, cores - fewer), fewer


@contextlib.contextmanager
def open_pairs(machine: Machine) -> Iterator[list[Pair]]:
    """Every pair that this machine has, closed afterwards; none if it stands for one device only.

    The process is not bound to the cores next to a GPU, because all cores compute.
    """
    float32_is_float32()
    with contextlib.ExitStack() as closing:
        pairs = list(_emulated(machine) if machine.emulated else _with_gpus(machine))
        for device in {id(device): device for pair in pairs for device in pair.devices}.values():
            closing.callback(device.close)
        yield pairs


def _emulated(machine: Machine) -> Iterator[Pair]:
    if machine.num_devices < 2 or machine.cores < 2:
        return
    threads = unequal_cores(machine.cores)
    slowed = REPEATS if threads[0] == threads[1] else 1
    first, second = (f"{count} core{'s' * (count > 1)}" for count in threads)
    workers: list[devices.Device] = [devices.CpuDevice(index, count) for index, count in enumerate(threads)]
    yield Pair((first, f"{second}, slowed {slowed}x" if slowed > 1 else second), workers, slowed)


def _with_gpus(machine: Machine) -> Iterator[Pair]:
    gpu, threads = devices.GpuDevice(torch.device(machine.kind, 0)), max(1, host.usable_cores() - 1)
    yield Pair(("GPU 0", "CPU"), [gpu, devices.CpuDevice(machine.num_devices, threads)])
    used = machine.gpus[: machine.num_devices]
    other = next((index for index, name in enumerate(used) if name != used[0]), None)
    if other is not None:
        second = devices.GpuDevice(torch.device(machine.kind, other))
        yield Pair((f"GPU 0 ({used[0]})", f"GPU {other} ({used[other]})"), [gpu, second])
