"""Stages alone: each does what it does in a step, whatever the model takes, and the schedules are played with them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scalecard.benchmarks.training import stage_timing
from scalecard.benchmarks.training.cut_model import balanced_cuts, crossing
from scalecard.benchmarks.training.stage_timing import given, stage_of
from scalecard.benchmarks.training.strategy import References, Setting, StrategyBuilder
from scalecard.hardware.devices import CpuDevice, Device
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import counted
from scalecard.parallel import model_parallel
from scalecard.parallel.model_parallel import StageAlone
from scalecard.records.axes import Case
from scalecard.records.record import Reason, Record
from scalecard.workloads import workload as loads
from scalecard.workloads.recipe import OptimizerSettings
from scalecard.workloads.workload import Workload
from support.builders import timed

HOST = torch.device("cpu")
TINY = {"layers": 2, "width": 8, "heads": 2, "sequence": 4, "vocabulary": 11}
PART = ("forward", "forward and backward", "update")
NORMS = """
import torch
from torch import nn
from torch.nn import functional
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(9, 6), nn.Linear(3, 6)
    def forward(self, x): return self.users(x["user"]) + self.items(x["item"])
def model(): return nn.Sequential(Both(), nn.LayerNorm(6), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 4))
def batch(size, seed):
    g = torch.Generator().manual_seed(seed)
    items = torch.randn(size, 3, generator=g)
    return {"user": torch.randint(9, (size,), generator=g), "item": items}, torch.randn(size, 4, generator=g)
def loss(outputs, targets): return functional.mse_loss(outputs, targets)
"""
DROPS = NORMS.replace("nn.ReLU()", "nn.Dropout()")
ROWS = "nn.Unflatten(1, (2, 3)), nn.Flatten(0, 1), nn.Linear(3, 40), nn.Linear(40, 3), nn.Unflatten(0, (-1, 2))"
FLAT = NORMS.replace("nn.LayerNorm(6)", f"{ROWS}, nn.Flatten(1)")  # two rows for each sample, where it is cut
HALVES = NORMS.replace("nn.LayerNorm(6)", "Halves(6)").replace(
    "def model", "class Halves(nn.LayerNorm):\n    def forward(self, x): return super().forward(x.float())\ndef model"
)


@pytest.fixture
def devices() -> Iterator[list[Device]]:
    opened: list[Device] = [CpuDevice(index, 1) for index in range(2)]
    yield opened
    for device in opened:
        device.close()


def written(folder: Path, text: str) -> Workload:
    path = folder / "mine.py"
    path.write_text(text)
    loads.loaded.cache_clear()
    return Workload("mine", str(path), "{}", 6, seed=0, lr=0.1)


@dataclass
class Built:
    """One part of a stage, and what is seen of it."""

    strategy: StrategyBuilder
    subject: Subject
    devices: list[Device]

    @property
    def name(self) -> tuple[object, object]:
        return self.strategy.axes["stage"], self.strategy.axes["part"]

    def proven(self) -> bool:
        checks = [*self.subject.prove()]
        assert checks
        return all(check.passed for check in checks)

    def wait(self) -> None:
        for device in self.devices:
            device.synchronize()

    def counts(self) -> dict[str, float]:
        found = counted(self.subject, self.wait)
        assert all(count.passed for count in found), found
        return {count.name: count.counted for count in found}


def built(workload: Workload, devices: list[Device], *, num_micro: int) -> list[Built]:
    """Every part of every stage, of micro-batches or, with one of them, of the whole batch."""
    references, at = References(HOST, 1), Setting(workload, 2, num_micro)
    return [
        Built(strategy, strategy.build(references, at), devices)
        for strategy in stage_timing.builders(devices)
        if strategy.pipelined == (num_micro > 1)
    ]


@pytest.mark.parametrize("num_micro", [1, 3])
@pytest.mark.parametrize(
    "text", ["", NORMS, DROPS, FLAT, HALVES], ids=["tokens", "dicts", "dropout", "flattened", "not in float64"]
)
def test_each_stage_is_proven_and_together_they_are_the_step(
    text: str, num_micro: int, devices: list[Device], tmp_path: Path
) -> None:
    workload = written(tmp_path, text) if text else Workload("gpt", "", json.dumps(TINY), 6, seed=0, lr=0.1)
    workload = replace(workload, frozen="Dropout" in text, inexact="Halves" in text)
    whole, passes = References(HOST, 1).counts(workload, Setting(workload, 2, num_micro).micro_sizes()), 0.0
    for one in built(workload, devices, num_micro=num_micro):
        assert one.proven(), one.name
        counts = one.counts()
        passes += counts.get("FLOPs", 0.0)
        if one.strategy.axes["part"] == "update":
            assert counts["updates"] == 1
        else:
            assert counts["forwards"] == num_micro
    assert passes == whole["FLOPs"] > 0


def test_a_model_with_dropout_is_proven_without_and_timed_with_it(devices: list[Device], tmp_path: Path) -> None:
    workload = replace(written(tmp_path, DROPS), frozen=True)
    dropping = set()
    for one in built(workload, devices, num_micro=3):
        layers = one.subject.module.modules() if one.subject.module else []
        dropouts = [layer for layer in layers if isinstance(layer, torch.nn.Dropout)]
        assert not any(layer.training for layer in dropouts)
        assert one.proven()
        assert all(layer.training for layer in dropouts)
        dropping |= {one.name for _ in dropouts}
    assert dropping == {(1, "forward"), (1, "forward and backward")}


def test_a_batch_that_is_not_cut_needs_no_forwards_alone(devices: list[Device], tmp_path: Path) -> None:
    workload = written(tmp_path, NORMS)
    names = [one.name for one in built(workload, devices, num_micro=1)]
    assert names == [(stage, part) for stage in range(2) for part in ("update", "forward and backward")]
    names = [one.name for one in built(workload, devices, num_micro=3)]
    assert sorted(map(str, names)) == sorted(str((stage, part)) for stage in range(2) for part in PART)


def test_the_last_stage_alone_computes_the_loss(devices: list[Device]) -> None:
    """With many tokens in the vocabulary it takes as long as a layer."""
    workload = Workload("gpt", "", json.dumps(TINY), 6, seed=0, lr=0.1)
    cuts = balanced_cuts(workload, 2)
    first, last = given(workload, cuts, HOST)
    assert first.loss is None
    assert last.loss is workload.loss
    assert last.inputs.shape == (6, 4, 8)
    inputs, targets = workload.batch(6, HOST)
    expected = workload.loss(workload.network(HOST)(inputs), targets)
    torch.testing.assert_close(last.through(stage_of(workload, cuts, 1)), expected)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_forwards", lambda real: lambda self, count: [0.5 * made for made in real(self, count)]),
        ("gradients", lambda real: lambda self: [2 * gradient for gradient in real(self)]),
    ],
    ids=["half of the output", "the gradients are twice as large"],
)
def test_a_stage_that_computes_something_else_is_noticed(
    name: str, wrong: Callable[..., Any], devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Workload("gpt", "", json.dumps(TINY), 6, seed=0, lr=0.1)
    monkeypatch.setattr(StageAlone, name, wrong(getattr(StageAlone, name)))
    found = {one.name: one.proven() for one in built(workload, devices, num_micro=3) if one.name[1] == PART[1]}
    assert found == {(0, PART[1]): False, (1, PART[1]): False}


def test_what_is_handed_over_may_have_other_rows_than_samples(devices: list[Device], tmp_path: Path) -> None:
    workload = replace(written(tmp_path, FLAT), inexact=True)
    cuts = balanced_cuts(workload, 2)
    assert given(workload, cuts, HOST)[1].inputs.shape == (12, 40)
    assert crossing(workload, cuts, workload.batch_size, HOST) == [12 * 40 * 4]
    assert all(one.proven() for one in built(workload, devices, num_micro=1))


def test_what_comes_back_to_a_stage_does_not_vanish_in_a_normalisation() -> None:
    """The gradient of a sum would: a layer below LayerNorm would get nothing, and any wrong one would pass."""
    device, stage = CpuDevice(0, 1), torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6))
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    alone = StageAlone(stage, model_parallel.Given(inputs), device)
    alone.run(1)
    device.close()
    weight, *_, scale, shift = (float(gradient.norm()) for gradient in alone.gradients())
    assert weight > 0.1 * max(scale, shift)


def test_an_update_alone_has_gradients_even_if_they_were_cleared(devices: list[Device]) -> None:
    stage = torch.nn.Linear(2, 2)
    before = stage.weight.detach().clone()
    alone = stage_timing.update(stage, devices[0], OptimizerSettings(0.5))
    for _ in range(2):
        stage.weight.grad = None
        alone.work()
        devices[0].synchronize()
    torch.testing.assert_close(stage.weight.detach(), before - 1)


OF: Case = {"workload": "mine", "devices": 2}
STRONG: Case = {**OF, "scaling": "strong", "batch_size": 4}


def step(strategy: str, **changes: Any) -> Record:
    record = timed([9.0, 9.0], metric="step_time", **{**STRONG, "strategy": strategy, "unit": "samples", "units": 4})
    return replace(record, **changes)


def alone(stage: int, part: str, *seconds: float, rounds_id: str = "rounds", **case: Any) -> Record:
    own = OF if part == "update" else {**STRONG, **case}
    return timed(seconds, metric="stage_time", rounds_id=rounds_id, **{**own, "stage": stage, "part": part})


def times(**options: Any) -> list[Record]:
    """Of each of two micro-batches, stage 0 takes 1 to and 1 fro, stage 1 takes 3; in the second round, twice that."""
    return [
        alone(0, "update", 0.5, 1.0),
        alone(1, "update", 1.0, 2.0),
        alone(0, "forward", 2.0, 4.0, split_size=2),
        alone(1, "forward", 6.0, 12.0, split_size=2),
        alone(0, "forward and backward", 4.0, 8.0, split_size=2),
        alone(1, "forward and backward", 12.0, 24.0, split_size=2, **options),
        alone(0, "forward and backward", 3.0, 6.0, split_size=4),
        alone(1, "forward and backward", 10.0, 20.0, split_size=4),
    ]


@pytest.mark.parametrize(
    ("strategy", "makespan", "busy"),
    [
        ("model parallel", 3 + 10 + 1, 3 + 10 + 1.5),  # one after the other, then the longer update
        ("our gpipe", 1 + 4 * 3 + 1 + 0.5, 4 + 12 + 1.5),  # stage 1 from 1 to 13, then stage 0's last backward
        ("our 1f1b", 1 + 4 * 3 + 1 + 0.5, 4 + 12 + 1.5),
    ],
)
def test_a_schedule_is_played_round_by_round(strategy: str, makespan: float, busy: float) -> None:
    time, bubble = stage_timing.schedules_played([step(strategy), *times()])
    assert time.case == bubble.case == step(strategy).case
    assert (time.metric, time.unit, bubble.metric, bubble.unit) == ("played_time", "s", "played_bubble", "fraction")
    assert time.samples == [[makespan, 2 * makespan]]
    assert bubble.samples == [pytest.approx([1 - busy / (2 * makespan)] * 2)]
    assert time.telemetry[0].rounds_id == step(strategy).telemetry[0].rounds_id


def test_the_stages_of_another_scaling_are_not_played() -> None:
    weak = replace(step("model parallel"), case={**step("model parallel").case, "scaling": "weak", "batch_size": 8})
    both = timed([50.0, 50.0], metric="stage_time", **{**weak.case, "split_size": 8, "stage": 0, "part": PART[1]})
    others = [one for one in [*times(), both] if one.case.get("split_size") != 8]
    (record,) = stage_timing.schedules_played([weak, *others])
    assert record.status == "skipped"


def test_a_part_that_failed_is_why_there_is_no_played_time() -> None:
    *others, failed = times()
    failed = Record.failed(failed.case, "too much", reason=Reason.OUT_OF_MEMORY, metric="stage_time")
    (record,) = stage_timing.schedules_played([step("model parallel"), *others, failed])
    assert (record.metric, record.status, record.note) == ("played_time", "failed", "too much")
    assert record.case == step("model parallel").case
    assert [r.status for r in stage_timing.schedules_played([step("our gpipe"), *others, failed])] == [
        "ok",
        "ok",
    ]


def test_stages_that_were_not_timed_in_the_same_rounds_are_not_played() -> None:
    (record,) = stage_timing.schedules_played([step("our gpipe"), *times(rounds_id="others")])
    assert record.status == "skipped"
    assert "too small to time all of its stages in the same rounds" in record.note


def test_a_model_that_cannot_be_cut_says_so_once() -> None:
    why: dict[str, Any] = {"status": "skipped", "reason": Reason.UNSUPPORTED, "note": "it has one block"}
    refused = [step(kind.name, samples=[], **why) for kind in stage_timing.PLAYED]
    (record,) = stage_timing.schedules_played([*refused, step("DataParallel")])
    assert (record.case, record.metric, record.status, record.note) == (OF, "stage_time", "skipped", "it has one block")
    assert not [*stage_timing.schedules_played([])], "as in the search for the largest batches"


def test_what_was_not_tried_alone_says_why() -> None:
    """Not why another strategy could not be used, nor the same one at another scaling."""
    refused = step("our gpipe", samples=[], status="failed", reason=Reason.OUT_OF_MEMORY, note="graphs")
    weak = replace(refused, case={**refused.case, "scaling": "weak", "batch_size": 8}, note="weak")
    other = replace(step("model parallel"), case={**weak.case, "strategy": "model parallel"})
    other = replace(other, samples=[], status="skipped", reason=Reason.UNSUPPORTED, note="uneven")
    whole = [one for one in times() if one.case.get("split_size") != 2]
    records = stage_timing.schedules_played([other, weak, step("model parallel"), refused, step("our 1f1b"), *whole])
    found = {record.case["strategy"]: record for record in records}
    assert found["model parallel"].status == "ok"
    assert found["our 1f1b"].note == "its stages were not timed alone: out of memory: graphs"
    assert "our gpipe" not in found
    (late,) = stage_timing.schedules_played([refused, step("model parallel")])
    assert late.note == "its stages were not timed alone: the time was over"
