"""What a group finds on a GPU whose memory is made up: the largest batches, and proofs that do not fit."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from scalecard.measuring.rule import Rule
from scalecard.measuring.variant import Subject, Variant
from scalecard.records.record import Record
from scalecard.strategies import measured, trial
from scalecard.strategies.load import Load
from scalecard.strategies.plainly import Plainly, Setting
from scalecard.strategies.strategy import CannotBe, Strategy

MIB = 2.0**20
GPU = torch.device("cuda", 0)
LOAD = Load("toy", "", "{}", 4, seed=0)


@dataclass
class Rank:
    """The only rank, on a GPU."""

    device: torch.device = GPU
    world_size: int = 1
    leads: bool = True

    def synchronize(self) -> None:
        pass

    def all_gather(self, value: Any) -> list[Any]:
        return [value]

    def maximum(self, values: list[float]) -> list[float]:
        return values


class Gpu:
    """Of 1000 MiB that can be used; a strategy keeps 100 and takes one more for each sample, as it is timed."""

    def __init__(self, patch: pytest.MonkeyPatch, *, in_float64: float = 200) -> None:
        self.now = self.most = 0.0
        self.in_float64, self.tried = in_float64, list[int]()
        patch.setattr(torch.cuda, "memory_allocated", lambda index: self.now)
        patch.setattr(torch.cuda, "max_memory_allocated", lambda index: self.most)
        patch.setattr(torch.cuda, "reset_peak_memory_stats", lambda index: setattr(self, "most", self.now))
        patch.setattr(trial, "_free", lambda index: 1000 * MIB - self.now)
        patch.setattr(trial, "empty_cache", lambda: setattr(self, "now", 0.0))
        patch.setattr(trial.Trials, "warm_up", lambda trials: None)

    def build(self, plainly: Plainly, at: Setting) -> Subject:
        batch = at.load.batch_size
        needed = self.in_float64 if at.load.exact else 100.0 + batch
        if not at.load.exact:
            self.tried.append(batch)
        if needed > 1000:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self.now = 100 * MIB

        def step() -> None:
            self.most = max(self.most, needed * MIB)

        return Subject(work=step, prove=list)


def group(rule: Rule, *, most_micro: int = 2) -> measured.Group:
    rank: Any = Rank()
    plainly = Plainly(torch.device("cpu"), 1, counting=False)
    return measured.Group(rank, [rank], plainly, LOAD, {"workload": "toy"}, ("strong",), rule, most_micro)


def test_the_largest_batch_of_each_strategy_is_looked_for_within_the_memory(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """900 samples would fit, but 256 are the most that is looked for: 64 times 4."""
    gpu = Gpu(monkeypatch)
    (record,) = group(rule).largest_batches([Strategy("mine", gpu.build)])
    assert (record.metric, record.unit, record.samples) == ("largest_batch", "samples", [[256.0]])
    assert record.case == {"workload": "toy", "strategy": "mine"}
    assert record.note == measured.MORE
    monkeypatch.setattr(measured, "MOST", 1000)
    gpu.tried.clear()
    (record,) = group(rule).largest_batches([Strategy("mine", gpu.build)])
    assert 850 <= record.median <= 900
    assert record.note == ""
    assert max(gpu.tried) <= 900


def test_a_pipelines_largest_batch_has_whole_micro_batches(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "MOST", 1000)
    (record,) = group(rule, most_micro=7).largest_batches([Strategy("mine", Gpu(monkeypatch).build, pipelined=True)])
    assert record.median % 7 == 0


def test_a_strategy_that_cannot_have_one_devices_batch_has_no_largest_one(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(plainly: Plainly, at: Setting) -> Subject:
        raise CannotBe("it has no plan")

    Gpu(monkeypatch)
    assert not list(group(rule).largest_batches([Strategy("mine", build)]))


@pytest.mark.parametrize(
    ("in_float64", "proofs", "note"), [(900, 1, ""), (1001, 0, measured.AS_TIMED)], ids=["fits", "does not fit"]
)
def test_a_proof_that_does_not_fit_is_left_out_and_the_record_says_so(
    rule: Rule, in_float64: float, proofs: int, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = list[Variant]()

    def time_rounds(given: list[Variant], **options: Any) -> list[Timed]:
        variants.extend(given)
        return [Timed(variant) for variant in given]

    monkeypatch.setattr(measured, "time_rounds", time_rounds)
    time, memory = group(rule).times([Strategy("mine", Gpu(monkeypatch, in_float64=in_float64).build)])
    assert [len(variant.proven_at) for variant in variants] == [proofs]
    assert (time.status, time.note) == ("ok", note)
    assert (memory.metric, memory.samples) == ("peak_memory", [[104 * MIB]])


def test_the_stages_of_what_cannot_be_used_are_not_tried_and_none_is_timed_twice(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever strategies share an update, it is the same."""

    def refused(plainly: Plainly, at: Setting) -> Subject:
        raise CannotBe("it has one block")

    monkeypatch.setattr(measured, "time_rounds", lambda given, **options: [Timed(variant) for variant in given])
    build, update = Gpu(monkeypatch).build, {"stage": 0, "part": "update"}
    forward, other = ({"stage": stage, "part": "forward"} for stage in range(2))
    strategies = [
        Strategy("no", refused),
        Strategy("yes", build),
        *(Strategy(name, build, metric="stage_time", axes=axes) for name, axes in (("no", other), ("yes", forward))),
        *(Strategy(name, build, metric="stage_time", axes=update, of_batch=False) for name in ("no", "yes", "yes")),
    ]
    found = [record for record in group(rule).times(strategies) if record.metric != "peak_memory"]
    assert [(record.metric, record.status) for record in found] == [
        ("step_time", "skipped"),
        ("step_time", "ok"),
        ("stage_time", "ok"),
        ("stage_time", "ok"),
    ]
    batch = {"scaling": "strong", "batch_size": 4, "split_size": 4}
    assert [record.case for record in found[2:]] == [
        {"workload": "toy", **batch, **forward},
        {"workload": "toy", **update},
    ]


@dataclass
class Timed:
    """What time_rounds would have found."""

    variant: Variant

    def record(self, metric: str) -> Record:
        return Record(case=self.variant.case, metric=metric, unit="s", samples=[[1.0]])
