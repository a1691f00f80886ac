"""A division of a minibatch: predicted from each device alone, then timed beside the fastest one alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scalecard import experiments
from scalecard.experiments import heterogeneous
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.records import files
from scalecard.records.record import Reason, Record, Result
from support.blocks import block, smoke_block


def run(machine: Machine, **changes: Any) -> list[Record]:
    spec = experiments.build("heterogeneous", smoke_block("heterogeneous", **changes))
    return list(heterogeneous.run(spec, replace(machine, kind="cpu", gpus=[], num_devices=2, cores=2)))


def pretended(per_sample: dict[str, float]) -> Any:
    """Rounds in which nothing runs: a device takes so many seconds per sample, and both the longer of their two."""

    def timed(variants: list[Variant], **_options: Any) -> list[Timing]:
        return [Timing(variant=variant, completion=[_seconds(variant)] * 6) for variant in variants]

    def _seconds(variant: Variant) -> float:
        shares, (fast, slow) = variant.timed_at.shares, per_sample.values()
        return max(shares[0] * fast, shares[1] * slow)

    return timed


def test_every_division_is_proven_and_timed_beside_the_fastest_alone(
    machine: Machine, make_result: Callable[..., Result]
) -> None:
    records = run(machine)
    files.parse(files.as_json(make_result(records, experiment="heterogeneous")), "of the schema")
    assert {record.status for record in records} == {"ok"}
    together = [record for record in records if record.case["part"] == "together"]
    assert together[0].case["share"] == 8, "the first worker alone, which does its share once"
    assert len({record.telemetry[0].rounds_id for record in together}) == 1
    assert {record.case["slowed"] for record in records} == {3}
    for record in records:
        if record.metric == "step_time":
            assert len({check.dtype for check in record.checks}) == 2, "in float64 and as it is timed"


@pytest.mark.parametrize(
    ("seconds", "share", "swept"),
    [
        ({"fast": 1.0, "slow": 3.0}, 75, [100, 80, 76, 75, 72, 68, 50]),
        ({"fast": 3.0, "slow": 1.0}, 25, [0, 20, 24, 25, 28, 32, 50]),
        ({"fast": 1.0, "slow": 200.0}, 100, [100, 99, 98, 50]),
    ],
)
def test_the_sweep_lies_around_the_prediction(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], share: int, swept: list[int]
) -> None:
    """By hand: n at 1 s against 100 - n at 3 s is 75. Neighbours are counted on the slower device."""
    monkeypatch.setattr(heterogeneous, "time_rounds", pretended(seconds))
    monkeypatch.setattr(
        Timing, "record", lambda timing, metric: Record(case=timing.variant.case, metric=metric, unit="s")
    )
    records = run(machine, batch_size=100, shares=[50])
    (predicted,) = [record for record in records if record.metric == "predicted_share"]
    (after,) = [record for record in records if record.metric == "predicted_time"]
    assert predicted.samples == [[share / 100]]
    assert after.samples == [[max(share * seconds["fast"], (100 - share) * seconds["slow"])]]
    assert [record.case["share"] for record in records if record.case["part"] == "together"] == swept


def test_without_every_share_alone_nothing_is_predicted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_fails(variants: list[Variant], **_options: Any) -> list[Timing]:
        timings: list[Timing] = pretended({"fast": 1.0, "slow": 3.0})(variants)
        timings[-1].fail("the whole batch", Reason.OUT_OF_MEMORY)
        return timings

    monkeypatch.setattr(heterogeneous, "time_rounds", one_fails)
    *_, failed, skipped = run(machine)
    assert (failed.status, skipped.status) == ("failed", "skipped")
    assert skipped.note == "nothing to predict from: 8 on 1 core, slowed 3x: out of memory: the whole batch"


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"batch_size": 1, "shares": [1]}, "batch_size = 1: must be at least 2"), ({"shares": [300]}, "shares = 300")],
)
def test_what_cannot_be_divided_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        experiments.build("heterogeneous", block("heterogeneous", **changes))
