"""Experiments where something is missing or runs out: recorded with the reason, and the rest is measured."""

import dataclasses
from typing import Any

import pytest
import torch
from scalecard import specs
from scalecard.experiments import allreduce
from scalecard.machine import Machine
from scalecard.schema import Record
from test_config import block

QUICK = {
    "warmup_seconds": 0,
    "block_seconds": 0,
    "min_rounds": 2,
    "max_rounds": 2,
    "min_seconds": 0,
    "max_seconds": 1,
    "precision": 0.5,
    "processes": 1,
}


def run(name: str, machine: Machine, **changes: Any) -> list[Record]:
    module = specs.experiment_module(name)
    return list(module.run(specs.build(name, block(name, "quick", measure=QUICK, **changes)), machine))


@pytest.mark.parametrize("name", ["async_timing", "copy_cost", "allreduce", "pipeline", "hybrid"])
def test_with_one_device_the_rest_is_skipped_with_a_reason(machine: Machine, name: str) -> None:
    small = {"async_timing": {"size": 16, "sizes": [16]}, "copy_cost": {"size": 16, "bytes": [4096]}}
    records = run(name, dataclasses.replace(machine, num_devices=1), **small.get(name, {}))
    skipped = [record for record in records if record.status == "skipped"]
    assert skipped
    assert all("needs" in r.note or "GPU" in r.note for r in skipped)


def test_a_size_that_does_not_fit_fails_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def integers(size: int, seed: int, *, rank: int) -> torch.Tensor:
        if size > 4096:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate a lot")
        return torch.ones(size // 4)

    monkeypatch.setattr(allreduce, "_integers", integers)
    monkeypatch.setattr(allreduce, "measured", lambda *args, **kwargs: [])
    records = run("allreduce", dataclasses.replace(machine, num_devices=2), bytes=[4096, 65536])
    by_size = {size: [r for r in records if r.case["bytes"] == size] for size in (4096, 65536)}
    assert {record.status for record in by_size[4096]} == {"ok"}
    assert [record.status for record in by_size[65536]] == ["failed"]
    assert "out of memory" in by_size[65536][0].note


def test_a_wrong_sum_is_never_timed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(allreduce.ALGORITHMS, "naive", lambda devices, buckets: None)
    with pytest.raises(RuntimeError, match="not timed"):
        run("allreduce", dataclasses.replace(machine, num_devices=2), bytes=[4096])


def test_hybrid_ranks_average_to_the_single_devices_parameters(machine: Machine) -> None:
    four = dataclasses.replace(machine, num_devices=4, cores=4)
    records = run("hybrid", four, batch_size=2, image_size=64, check_batch_size=1, check_image_size=64, check_steps=2)
    (averaged,) = [record for record in records if record.case["strategy"] == "hybrid"]
    assert averaged.case["ranks"] == 2
    assert averaged.case["devices"] == 4
    (check,) = averaged.checks
    assert check.passed
    assert {r.case["ranks"] for r in records if r.case["strategy"] == "model parallel"} == {1, 2}
