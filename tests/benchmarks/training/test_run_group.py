"""What a group finds on a GPU whose memory is made up: the largest batches, and proofs that do not fit."""

import os
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from scalecard.benchmarks.training import memory_trials, run_group
from scalecard.benchmarks.training.strategy import UNSYNCHRONISED, CannotBe, References, Setting, StrategyBuilder
from scalecard.measuring import stopping_rule
from scalecard.measuring.case_variant import Subject, Timing, Variant
from scalecard.measuring.stopping_rule import Rule, begin_budget, budget_left
from scalecard.records.record import Reason
from scalecard.records.strategies import DDP, FSDP_GRADIENTS, MODEL_PARALLEL, OUR_1F1B, OUR_GPIPE, SINGLE
from scalecard.workloads.workload import Workload
from support.made_up_gpu import MIB, Gpu, Rank, Timed

LOAD = Workload("toy", "", "{}", 4, seed=0)


def group(rule: Rule, *, most_micro: int = 2) -> run_group.Group:
    rank: Any = Rank()
    references = References(torch.device("cpu"), 1, counting=False)
    return run_group.Group(
        rank, [rank], references, LOAD, {"workload": "toy"}, ("strong",), rule, most_micro, by_kind=True
    )


def test_the_largest_batch_of_each_strategy_is_looked_for_within_the_memory(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """900 samples would fit, but 256 are the most that is looked for: 64 times 4."""
    gpu = Gpu(monkeypatch)
    (record,) = group(rule).largest_batches([StrategyBuilder(SINGLE, gpu.build)])
    assert (record.metric, record.unit, record.samples) == ("largest_batch", "samples", [[256.0]])
    assert record.case == {"workload": "toy", "strategy": "single device"}
    assert record.note == run_group.MORE
    monkeypatch.setattr(run_group, "MOST", 1000)
    gpu.tried.clear()
    (record,) = group(rule).largest_batches([StrategyBuilder(SINGLE, gpu.build)])
    assert 850 <= record.median <= 900
    assert record.note == ""
    assert max(gpu.tried) <= 900


def test_largest_batches_for_which_no_time_is_left_are_skipped(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    monkeypatch.setattr(run_group, "budget_over", lambda ranks: True)
    (record,) = group(rule).largest_batches([StrategyBuilder(SINGLE, gpu.build)])
    assert (record.status, record.reason, record.metric) == ("skipped", Reason.NO_TIME, "largest_batch")
    assert not gpu.tried


def test_trials_leave_half_of_the_time_to_what_they_found(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three strategies, the second one's trial uses up the first half."""
    gpu, built, left = Gpu(monkeypatch), list[str](), list[float]()
    for variable in (stopping_rule.DEADLINE, stopping_rule.PACE):
        monkeypatch.setenv(variable, "1")  # as before afterwards
    begin_budget(100, 0)

    def build(name: str, references: Any, at: Setting) -> Subject:
        built.append(name)
        if name == "second":
            os.environ[stopping_rule.DEADLINE] = "0"
        return gpu.build(references, at)

    def timed(given: list[Variant], **options: Any) -> list[Timed]:
        left.append(budget_left())
        return [Timed(variant) for variant in given]

    monkeypatch.setattr(memory_trials, "time_rounds", timed)
    kinds = {"first": SINGLE, "second": DDP, "third": FSDP_GRADIENTS}
    made = [StrategyBuilder(kind, partial(build, name)) for name, kind in kinds.items()]
    records = list(group(rule).times(made))
    late = [record.case["strategy"] for record in records if record.reason is Reason.NO_TIME]
    assert late == [FSDP_GRADIENTS.name]
    assert "third" not in built
    assert 0 < left[0] <= 100, "what was found is timed"


def test_a_pipelines_largest_batch_has_whole_micro_batches(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_group, "MOST", 1000)
    (record,) = group(rule, most_micro=7).largest_batches([StrategyBuilder(OUR_1F1B, Gpu(monkeypatch).build)])
    assert record.median % 7 == 0


def test_a_strategy_that_cannot_have_one_devices_batch_has_no_largest_one(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(references: References, at: Setting) -> Subject:
        raise CannotBe("it has no plan")

    Gpu(monkeypatch)
    assert not list(group(rule).largest_batches([StrategyBuilder(SINGLE, build)]))


@pytest.mark.parametrize(
    ("in_float64", "proofs", "note"), [(900, 1, ""), (1001, 0, memory_trials.AS_TIMED)], ids=["fits", "does not fit"]
)
def test_a_proof_that_does_not_fit_is_left_out_and_the_record_says_so(
    rule: Rule, in_float64: float, proofs: int, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = list[Variant]()

    def time_rounds(given: list[Variant], **options: Any) -> list[Timed]:
        variants.extend(given)
        return [Timed(variant) for variant in given]

    monkeypatch.setattr(memory_trials, "time_rounds", time_rounds)
    time, memory, *_ = group(rule).times([StrategyBuilder(SINGLE, Gpu(monkeypatch, in_float64=in_float64).build)])
    assert [len(variant.proven_at) for variant in variants] == [proofs]
    assert (time.status, time.note) == ("ok", note)
    assert (memory.metric, memory.samples) == ("peak_memory", [[104 * MIB]])


def test_memory_by_kind_comes_with_what_is_predicted_and_what_was_not_seen_says_so(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The toy has layers from 10 to 10 and to 5, and its optimiser keeps nothing; the made-up step has no backward."""
    monkeypatch.setattr(memory_trials, "time_rounds", lambda given, **options: [Timed(variant) for variant in given])
    _, _, *found = group(rule).times([StrategyBuilder(SINGLE, Gpu(monkeypatch).build)])
    measured = {r.case["kind"]: r for r in found if r.metric == "memory_by_kind"}
    expected = {r.case["kind"]: r.samples for r in found if r.metric == "predicted_memory"}
    assert len(measured) + len(expected) == len(found)
    assert {kind: record.status for kind, record in measured.items()} == {
        "parameters": "ok",
        "gradients": "skipped",
        "optimizer": "ok",
        "activations": "skipped",
        "rest": "skipped",
    }
    assert expected["parameters"] == expected["gradients"] == [[4 * (10 * 10 + 10 + 10 * 5 + 5)]]
    assert expected["optimizer"] == [[0]]
    assert expected["activations"][0][0] > 0


def test_the_stages_of_what_cannot_be_used_are_not_tried_and_none_is_timed_twice(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever strategies share an update, it is the same."""

    def refused(references: References, at: Setting) -> Subject:
        raise CannotBe("it has one block")

    monkeypatch.setattr(memory_trials, "time_rounds", lambda given, **options: [Timed(variant) for variant in given])
    build, update = Gpu(monkeypatch).build, {"stage": 0, "part": "update"}
    forward, other = ({"stage": stage, "part": "forward"} for stage in range(2))
    strategies = [
        StrategyBuilder(OUR_GPIPE, refused),
        StrategyBuilder(MODEL_PARALLEL, build),
        StrategyBuilder(OUR_GPIPE, build, metric="stage_time", axes=other),
        StrategyBuilder(MODEL_PARALLEL, build, metric="stage_time", axes=forward),
        *(
            StrategyBuilder(kind, build, metric="stage_time", axes=update, of_batch=False)
            for kind in (OUR_GPIPE, MODEL_PARALLEL, MODEL_PARALLEL)
        ),
    ]
    found = [record for record in group(rule).times(strategies) if "memory" not in record.metric]
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


def test_what_each_rank_takes_by_itself_is_a_record_of_its_own(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other rank, which is twice as slow, says so; a variant that failed has no such times."""

    class OfTwo(Rank):
        def all_gather(self, value: Any) -> list[Any]:
            return [value, [2 * seconds for seconds in value] if isinstance(value, list) else value]

    def time_rounds(given: list[Variant], **options: Any) -> list[Timing]:
        first, second = (Timing(variant=variant, rounds_id="rounds") for variant in given)
        first.own = [1.0, 3.0]
        second.fail("2 GiB", Reason.OUT_OF_MEMORY)
        return [first, second]

    monkeypatch.setattr(memory_trials, "time_rounds", time_rounds)
    rank: Any = OfTwo()
    made = replace(group(rule), ctx=rank, devices=[rank])
    build = Gpu(monkeypatch).build
    records = list(made.times(StrategyBuilder(kind, build, metric=UNSYNCHRONISED) for kind in (DDP, FSDP_GRADIENTS)))
    found = [record for record in records if record.metric == "rank_time"]
    assert [(record.case["strategy"], record.case["rank"]) for record in found] == [("DDP", 0), ("DDP", 1)]
    assert [record.samples for record in found] == [[[1.0, 3.0]], [[2.0, 6.0]]]
    assert all(record.telemetry[0].rounds_id == "rounds" for record in found)
