"""What was proven and counted, case by case, in words."""

from collections.abc import Callable

from scalecard.records.record import Check, Count, Record, Result
from scalecard.report.record_table import proofs


def test_every_timed_case_has_its_proof_and_its_counts(make_result: Callable[..., Result]) -> None:
    proven = Record(
        case={"option": "no_sync", "devices": 2},
        metric="step_time",
        unit="s",
        samples=[[0.1]],
        checks=[
            Check(name="parameters after 3 steps", dtype="float64", difference=2.2e-16, tolerance=1e-10),
            Check(name="sum", dtype="float32", difference=0, tolerance=0),
        ],
        work=[
            Count(name="FLOPs", counted=7.98e9, expected=7.98e9, unit="FLOP"),
            Count(name="all-reduced bytes", counted=2**20, expected=2**20, unit="B"),
            Count(name="received by the busiest device", counted=2048, expected=2048, unit="B"),
            Count(name="all-reduces", counted=2, expected=2),
        ],
    )
    (proof,) = proofs(make_result([proven, Record.skipped({"devices": 4}, "needs 4 devices")]))
    assert proof.cases == ["option no_sync, devices 2"]
    assert proof.proven == [
        "parameters after 3 steps: float64, differs by 2.2e-16 (allowed 1e-10)",
        "sum: float32, exactly equal (allowed 0)",
    ]
    assert proof.counted == [
        "arithmetic: 7.98 GFLOP",
        "sent in all-reduces: 1 MiB",
        "received by the busiest device: 2 KiB",
        "all-reduces: 2",
    ]


def test_cases_with_the_same_proof_are_told_together(make_result: Callable[..., Result]) -> None:
    def proven(devices: int, difference: float) -> Record:
        check = Check(name="parameters", dtype="float64", difference=difference, tolerance=1e-10)
        return Record(case={"devices": devices}, metric="time", unit="s", samples=[[0.1]], checks=[check])

    found = proofs(make_result([proven(2, 1e-16), proven(3, 2e-16), proven(4, 1e-16)]))
    assert [proof.cases for proof in found] == [["devices 2", "devices 4"], ["devices 3"]]
