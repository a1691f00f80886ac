"""The experiment on two devices: its cases, what was proven of them, and when a divided network is refused."""

import re
from dataclasses import replace

import pytest
import torch
from scalecard import experiments
from scalecard.experiments import tensor_parallel
from scalecard.hardware.machine import Machine, probe
from scalecard.parallel import tensor_parallel as divided
from scalecard.parallel import tensor_parallel_plans
from scalecard.records.record import Reason, Record
from support.blocks import smoke_block
from torch import Tensor


@pytest.fixture(scope="module")
def times() -> list[Record]:
    return [record for record in run(probe()) if record.metric == "step_time"]


def run(machine: Machine) -> list[Record]:
    spec = experiments.build("tensor_parallel", smoke_block("tensor_parallel"))
    return list(experiments.load("tensor_parallel").run(spec, replace(machine, num_devices=2, cores=2)))


def test_every_partition_is_proven_on_two_to_four_devices_and_timed_in_the_same_rounds(times: list[Record]) -> None:
    assert {record.status for record in times} == {"ok"}
    assert [(r.case["strategy"], r.case["devices"]) for r in times] == [
        ("single device", 1),
        ("column", 2),
        ("row", 2),
        ("pairs", 2),
    ]
    assert len({record.telemetry[0].rounds_id for record in times}) == 1
    for record in times:
        assert {check.dtype for check in record.checks} == {"float64", "float32"}
        proven = {int(n) for check in record.checks for n in re.findall(r"on (\d) device", check.name)}
        assert proven == ({1} if record.case["strategy"] == "single device" else {2, 3, 4})


def test_what_is_counted_of_a_single_device_and_of_pairs(times: list[Record]) -> None:
    """LeNet has 129,068 parameters; pairs replicate two biases, 50 and 10."""
    counts = {str(r.case["strategy"]): {c.name: c.counted for c in r.work} for r in times}
    assert counts["single device"]["parameter bytes"] == 4 * 129_068
    assert counts["pairs"]["parameter bytes"] == 4 * (129_068 + 60)
    assert counts["single device"]["received bytes"] == 0
    assert counts["pairs"]["FLOPs"] == counts["single device"]["FLOPs"] == counts["column"]["FLOPs"]
    assert counts["row"]["FLOPs"] - counts["single device"]["FLOPs"] == 4 * 2 * 2 * 26 * 26 * 20 * 9, (
        "the first layer, 4 images"
    )


def test_an_all_reduce_that_forgets_a_device_is_never_timed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(dimension: int, place: int, at: int, *made: list[Tensor]) -> list[Tensor]:
        return [made[0][at].tensor_split(len(made), dimension)[place].clone()]

    monkeypatch.setattr(divided, "_sum", wrong)
    notes = [record.note for record in run(machine) if record.reason is Reason.NOT_PROVEN]
    assert any("lenet, column, on 2 devices: parameters after 2 steps" in note for note in notes)


def test_more_bytes_than_the_formulas_are_never_timed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_parallel_plans, "bytes_exchanged", lambda *args, **options: 1)
    notes = [record.note for record in run(machine) if record.reason is Reason.NOT_PROVEN]
    assert any("lenet, column, on 2 devices: received bytes in one call" in note for note in notes)


def test_the_batch_is_the_same_on_every_device(machine: Machine) -> None:
    spec = experiments.build("tensor_parallel", smoke_block("tensor_parallel"))
    with tensor_parallel.open_devices(machine, 2) as devices:
        first, second = (tensor_parallel._batch(spec, 5, device, torch.float64) for device in devices)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert first[0].data_ptr() != second[0].data_ptr(), "its own copy"
