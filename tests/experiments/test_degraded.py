"""Experiments where something is missing, runs out or is wrong: recorded with the reason, and the rest is measured."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from scalecard import experiments
from scalecard.experiments import allreduce
from scalecard.hardware.machine import Machine
from scalecard.records.record import Reason, Record
from support.blocks import smoke_block

pytestmark = pytest.mark.usefixtures("forked_ranks")


def run(name: str, machine: Machine, **changes: Any) -> list[Record]:
    spec = experiments.build(name, smoke_block(name, **changes))
    return list(experiments.load(name).run(spec, machine))


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("async_timing", True),
        ("copy_cost", True),
        ("dp_scratch", True),
        ("tensor_parallel", True),
        ("allreduce", False),
        ("pipeline", False),
        ("hybrid", False),
        ("heterogeneous", False),
    ],
)
@pytest.mark.usefixtures("few_images")
def test_with_one_device_what_needs_two_is_skipped_with_a_reason(machine: Machine, name: str, measured: bool) -> None:
    records = run(name, replace(machine, num_devices=1))
    skipped = [record for record in records if record.status == "skipped"]
    assert skipped
    assert all(record.note for record in skipped)
    assert any(record.status == "ok" for record in records) == measured


def test_a_size_that_does_not_fit_fails_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def filled(bucket: torch.Tensor, value: Any) -> None:
        if bucket.nbytes > 4096:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate a lot")
        real(bucket, value)

    real = allreduce.fill
    monkeypatch.setattr(allreduce, "fill", filled)
    monkeypatch.setattr(allreduce, "launch_and_record", lambda *args, **options: [])
    records = run("allreduce", replace(machine, num_devices=2), bytes=[4096, 65536])
    by_size = {size: [r for r in records if r.case["bytes"] == size] for size in (4096, 65536)}
    assert {record.status for record in by_size[4096]} == {"ok"}
    assert {record.status for record in by_size[65536]} == {"failed"}
    assert by_size[65536][0].reason is Reason.OUT_OF_MEMORY


def test_a_wrong_sum_is_never_timed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(allreduce.ALGORITHMS, "naive", lambda devices, buckets: None)
    monkeypatch.setattr(allreduce, "launch_and_record", lambda *args, **options: [])
    records = run("allreduce", replace(machine, num_devices=2))
    wrong = {record.case["algorithm"] for record in records if record.reason is Reason.NOT_PROVEN}
    assert wrong == {"naive"}, "the others are measured"
    assert any("sum on each of 2 devices" in record.note for record in records)
