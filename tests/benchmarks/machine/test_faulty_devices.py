"""A device that computes wrongly, or whose driver reports an error, is named, and the others are measured."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from scalecard import experiments
from scalecard.benchmarks.machine import matmul, node_benchmarks
from scalecard.hardware import devices as vocabulary
from scalecard.hardware.devices import CpuDevice, Device
from scalecard.hardware.failures import DeviceFault
from scalecard.hardware.machine import Machine
from scalecard.records.record import Reason, Record
from support.blocks import SHORTEST, block

SMALL: dict[str, Any] = {
    **{"size": 128, "dtypes": ["float32"], "memory_bytes": 4096, "link_bytes": [4096], "collective_bytes": [4096]},
    **{"rounds": 2, "load_seconds": 0.01, "measure": SHORTEST},
}
FAULT = "CUDA error: uncorrectable ECC error encountered"


class Noticed(CpuDevice):
    """Like a GPU whose fault a library notices first, while work is submitted, in its own words."""

    def __init__(self, index: int, at: int) -> None:
        super().__init__(index, 1)
        self.left = at

    def submit(self, work: Callable[..., Any], *args: Any) -> vocabulary.Task:
        self.left -= 1
        if self.fault or self.left < 0:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasSgemm")
        return super().submit(work, *args)

    def synchronize(self) -> None:
        super().synchronize()
        if self.left < 0 and not self.fault:
            self.fault = FAULT
            raise DeviceFault(f"{self}: {self.fault}")


class Faulty(CpuDevice):
    """Like a GPU whose driver reports an error of the work that is submitted as the `at`-th, and of all later calls."""

    def __init__(self, index: int, at: int) -> None:
        super().__init__(index, 1)
        self.left = at

    def submit(self, work: Callable[..., Any], *args: Any) -> vocabulary.Task:
        if self.fault:
            raise DeviceFault(f"{self} failed before: {self.fault}")
        self.left -= 1
        return super().submit(work, *args)

    def synchronize(self) -> None:
        super().synchronize()
        if self.left <= 0 and not self.fault:
            self.fault = FAULT
            raise DeviceFault(f"{self}: {self.fault}")


def node(machine: Machine, monkeypatch: pytest.MonkeyPatch, *opened: Device) -> list[Record]:
    @contextmanager
    def open_devices(machine: Machine) -> Iterator[list[Device]]:
        yield list(opened)
        for device in opened:
            device.close()

    monkeypatch.setattr(node_benchmarks, "open_devices", open_devices)
    spec = experiments.build("health", json.dumps(json.loads(block("health")) | SMALL))
    return list(node_benchmarks.records(spec, machine))


def of_device(record: Record, index: int) -> bool:
    return any(record.case.get(axis) == index for axis in ("device", "source", "target"))


@pytest.mark.parametrize("at", [1, 3, 8, 20, 40])
@pytest.mark.parametrize("kind", [Faulty, Noticed])
def test_a_fault_costs_the_records_of_its_device_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, kind: Callable[[int, int], Device], at: int
) -> None:
    """Whether it is proven, warmed up, timed in turn, or timed beside the others, and whoever notices it first."""
    records = node(machine, monkeypatch, CpuDevice(0, 1), kind(1, at), CpuDevice(2, 1))
    failed = [record for record in records if record.status == "failed"]
    assert {record.reason for record in failed} == {Reason.DEVICE_FAULT}
    assert all(of_device(record, 1) and FAULT in record.note for record in failed)
    assert sum("failed before" not in record.note for record in failed) <= 2, "it is asked for nothing more"
    others = [record for record in records if not of_device(record, 1) and record.status != "skipped"]
    assert {record.status for record in others} == {"ok"}
    for part in ("compute", "memory", "device link", "load", "host memory", "storage"):
        assert any(record.case["part"] == part for record in others), part


def test_a_device_that_computes_wrongly_is_named_and_the_others_are_timed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def multiply(x: torch.Tensor, count: int, dtype: str) -> list[torch.Tensor]:
        wrong = 1.5 if vocabulary._running.device.index == 1 else 1.0
        return [wrong * (x @ x) for _ in range(count)]

    monkeypatch.setattr(matmul, "_multiply", multiply)
    records = node(machine, monkeypatch, CpuDevice(0, 1), CpuDevice(1, 1))
    failed = [record for record in records if record.status == "failed"]
    assert {record.reason for record in failed} == {Reason.NOT_PROVEN}
    assert {(record.case["part"], record.case["device"]) for record in failed} == {("compute", 1), ("load", 1)}
    computed = [record for record in records if record.case["part"] == "compute" and record.status == "ok"]
    assert {record.case["device"] for record in computed} == {0}
