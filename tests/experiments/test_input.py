"""A loader beside what it feeds: what is measured of a workload, and what is said where it cannot be."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scalecard import experiments
from scalecard.benchmarks.training import input_loading
from scalecard.experiments import input as experiment
from scalecard.experiments.input import workers_for
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.records import files
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.workloads import workload
from support.blocks import block, smoke_block

DIVIDES = """
import torch
from torch import nn
def model(): return nn.Linear(3, 4)
def batch(size, seed): return torch.ones(size, 3), torch.zeros(size, 4)
def loss(outputs, targets): return (outputs - targets).square().mean()
class Odd(torch.utils.data.Dataset):
    def __len__(self): return 6
    def __getitem__(self, index): return torch.ones(3) / (1 if index < 4 else 0 / 0), torch.zeros(4)
def dataset(): return Odd()
"""


def run(machine: Machine, **changes: Any) -> list[Record]:
    spec = experiments.build("input", smoke_block("input", **changes))
    here = replace(machine, kind="cpu", gpus=[], num_devices=2, cores=2)
    return list(experiment.run(spec, here))


def test_loaders_and_steps_are_proven_counted_and_timed_side_by_side(
    machine: Machine, make_result: Callable[..., Result]
) -> None:
    records = run(machine, batches=3)
    files.parse(files.as_json(make_result(records, experiment="input")), "of the schema")
    measured = [record for record in records if record.status == "ok"]
    for part in ("workers", "settings"):
        assert len({record.telemetry[0].rounds_id for record in measured if record.case["part"] == part}) == 1
    assert {record.case["workers"] for record in measured if "workers" in record.case} == {0, 1}
    assert [r.case["persistent"] for r in measured if r.case.get("persistent") is not None].count(False) == 1
    for record in measured:
        size = record.case["batch_size"]
        counts = {count.name: count.counted for count in record.work}
        if record.metric == "load_time":
            assert counts == {"loaded samples": size}, "of one batch, as is the time"
        else:
            assert (counts["updates"], counts["forwards"]) == (2, 2), "AdamW decays, then steps; two micro-batches"
            assert len({check.dtype for check in record.checks}) == 2, "in float64 and as it is timed"
        assert record.telemetry[0].iterations % int(str(record.case["batches"])) == 0
    skipped = [record for record in records if record.status == "skipped"]
    assert {record.note for record in skipped} == {"pinned memory and copies to a device need a GPU"}


@pytest.fixture
def pretended_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes 1 s and, of a loader, 4 s divided by its workers: 4 would do, which nobody asked for."""

    def pretended(variants: list[Variant], **_options: Any) -> list[Timing]:
        return [Timing(variant=variant, completion=[_pass(variant.case)] * 6, prepared=None) for variant in variants]

    def _pass(case: Case) -> float:
        each = 1.0 if "data" in case else 4 / max(1, int(str(case["workers"])))
        return each * int(str(case["batches"]))

    def recorded(timing: Timing, metric: str) -> Record:
        return Record(case=timing.variant.case, metric=metric, unit="s", samples=[timing.completion])

    monkeypatch.setattr(experiment, "time_rounds", pretended)
    monkeypatch.setattr(Timing, "record", recorded)


def settings_of(records: list[Record]) -> list[Record]:
    return [record for record in records if record.samples and record.case["part"] == "settings"]


@pytest.mark.usefixtures("pretended_times")
def test_times_are_of_one_batch_and_the_workers_that_are_needed_are_timed(machine: Machine) -> None:
    records = [record for record in run(machine, workers=[0, 1, 8], batch_sizes=[2]) if record.samples]
    for record in records:
        expected = 1.0 if record.metric == "step_time" else 4 / max(1, int(str(record.case["workers"])))
        assert record.median == pytest.approx(expected)
    settings = settings_of(records)
    assert {record.case.get("workers") for record in settings} == {None, 0, 4}
    fed = {r.case["workers"]: r.case["batches"] for r in settings if r.case.get("data") == "fed"}
    assert fed == {0: 2, 4: 32}, "four times the eight that are loaded ahead"
    assert [r.case["workers"] for r in settings if r.case["batch_size"] == 2] == [4], "beside the batch as it is"


@pytest.mark.usefixtures("pretended_times")
def test_where_no_worker_is_needed_their_settings_are_not_timed(machine: Machine) -> None:
    assert {record.metric for record in settings_of(run(machine, workers=[0]))} == {"step_time"}


def test_without_a_time_to_compare_with_no_setting_is_tried(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(variants: list[Variant], **_options: Any) -> list[Timing]:
        return [Timing(variant=v, completion=[], prepared=None, failure="too little memory") for v in variants]

    monkeypatch.setattr(experiment, "time_rounds", failed)
    assert {record.case["part"] for record in run(machine, workers=[0, 1])} == {"workers"}


def test_without_a_data_set_or_with_too_small_a_one_the_reason_is_recorded(machine: Machine) -> None:
    text = {"sequence": 2**20, "layers": 1, "width": 2, "heads": 1, "vocabulary": 3}
    toy, gpt = run(machine, workloads={"toy": {"batch_size": 2}, "gpt": {"batch_size": 100, **text}})
    assert (toy.status, toy.note) == ("skipped", "the workload has no dataset()")
    assert (gpt.status, gpt.note) == ("skipped", "its data set has 64 samples, fewer than a batch of 100")


def test_a_data_set_of_the_users_that_raises_fails_alone(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(DIVIDES)
    workload.loaded.cache_clear()
    input_loading.samples_of.cache_clear()
    workloads = {"mine": {"file": "mine.py", "batch_size": 2}, "toy": {"batch_size": 2}}
    mine, toy = run(machine, workloads=workloads, workers=[0], batches=3, samples=6)
    assert (mine.status, mine.note) == ("failed", "ZeroDivisionError: division by zero")
    assert toy.case["workload"] == "toy"


@pytest.mark.parametrize(
    ("seconds", "wanted", "workers"),
    [
        ({0: 1.0, 1: 1.2, 2: 0.6}, 1.0, 2),
        ({0: 1.0, 1: 1.0, 2: 0.5, 4: 0.25, 8: 0.125}, 0.5, 2),
        ({0: 2.0, 8: 0.25, 16: 0.125}, 1 / 6, 12),
        ({0: 2.0, 8: 0.25, 16: 0.125}, 0.16, 13),
        ({4: 0.5}, 1.0, 2),
        ({0: 1.0, 1: 2.0, 2: 1.5}, 0.1, 2),
        ({0: 1.0}, 0.1, 0),
        ({0: 3.0, 1: 2.0, 2: 2.5}, 0.1, 1),
    ],
)
def test_the_workers_that_feed_a_device_follow_from_the_rates(
    seconds: dict[int, float], wanted: float, workers: int
) -> None:
    """By hand: 8 workers make 4 batches a second and 16 make 8, so that 12 make the 6 that are wanted."""
    assert workers_for(seconds, wanted) == workers


@pytest.mark.parametrize(
    ("changes", "named"), [({"workers": []}, "workers"), ({"prefetch": [0]}, "prefetch"), ({"batches": 1}, "batches")]
)
def test_odd_values_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=rf"experiments.input.{named}"):
        experiments.build("input", block("input", "quick", **changes))
