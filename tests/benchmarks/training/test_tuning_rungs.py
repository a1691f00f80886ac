"""A ladder on the only rank, a CPU: what is tried on what, what of it is proven, and what a wrong step leads to."""

from typing import Any

import pytest
import torch
from scalecard.benchmarks.training import tuning as ladders
from scalecard.benchmarks.training.tuning import Ladder, RoundedReferences
from scalecard.benchmarks.training.validate import examined
from scalecard.measuring import stopping_rule
from scalecard.measuring.stopping_rule import Rule
from scalecard.parallel import tuned_step
from scalecard.parallel.tuned_step import TunedStep
from scalecard.records.axes import RUNGS, Case, combination, rungs_of
from scalecard.records.record import Reason, Record
from scalecard.workloads import compiled
from scalecard.workloads.recipe import TEXTBOOKS, Recipe
from scalecard.workloads.workload import Workload
from support.lone_rank import LoneRank

CPU = torch.device("cpu")


def run(rule: Rule, *wanted: str, workload: str = "toy", recipe: Recipe = TEXTBOOKS, **more: Any) -> list[Record]:
    rank: Any = LoneRank()
    found = examined(Workload(workload, "", "{}", 4, seed=0, recipe=recipe), CPU, 2, 1)
    options: dict[str, Any] = {"base": (), "counts": (), "factors": (), **more}
    case: Case = {"workload": workload, "devices": 1}
    made = Ladder(rank, RoundedReferences(CPU, 2), found, case=case, rule=rule, wanted=wanted, **options)
    return list(made.records())


def timed(records: list[Record]) -> dict[str, Record]:
    """By the combination."""
    return {combination(record.case): record for record in records if record.status == "ok"}


@pytest.fixture(autouse=True)
def short(rule: Rule) -> Rule:
    return Rule(**{**vars(rule), "max_rounds": 6})


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any CPU computes it, however slowly."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)


@pytest.mark.usefixtures("bfloat16")
def test_each_rung_is_timed_alone_and_on_those_before_it_in_the_same_rounds(short: Rule) -> None:
    records = run(short, "tf32", "bf16", "fused", counts=(2,), factors=(3,))
    found = timed(records)
    assert list(found) == [
        "float32",
        "bf16",
        "fused",
        "bf16 + fused",
        "accumulate 2",
        "batch x3",
        "bf16 + fused + accumulate 2",
        "bf16 + fused + batch x3",
    ]
    assert len({record.telemetry[0].rounds_id for record in found.values()}) == 1
    sizes = [(record.case["batch_size"], record.case["units"]) for record in found.values()]
    assert sizes == [(4, 4)] * 4 + [(8, 8), (12, 12)] * 2
    axes = {"accumulate", "batch_factor", *RUNGS}
    last = found["bf16 + fused + batch x3"].case
    assert {axis: last[axis] for axis in axes if axis in last} == {"bf16": 1, "fused": 2, "batch_factor": 3}
    skipped = {combination(record.case): record.note for record in records if record.status == "skipped"}
    assert skipped["tf32"] == "TF32 exists on GPUs only"
    assert skipped["compile"] == ladders.LEFT_OUT
    assert {*skipped, "bf16", "fused"} == set(RUNGS)


@pytest.mark.usefixtures("bfloat16")
def test_what_keeps_float32_is_compared_with_the_plain_loop_twice_and_what_rounds_by_its_loss_as_well(
    short: Rule,
) -> None:
    found = timed(run(short, "bf16", "fused"))
    plain, rounded = found["fused"], found["bf16 + fused"]
    assert [check.dtype for check in plain.checks] == ["float64", "float32"]
    assert [check.dtype for check in rounded.checks] == ["float64", "bfloat16", "bfloat16"]
    loss, void = rounded.checks[1:]
    assert 0 < loss.difference < loss.tolerance, "it rounds, and no more than it may"
    assert void.difference < 0.1, "what it may is small beside what is learned"
    work = {count.name: count.counted for count in rounded.work}
    assert set(work) == {"fused updates", "optimizer bytes", "forwards", "FLOPs", "float32 FLOPs"}
    assert work["FLOPs"] > work["float32 FLOPs"] == 0


def test_convolutions_are_proven_in_their_layout(short: Rule) -> None:
    found = timed(run(short, "channels_last", "fused", workload="lenet"))
    assert list(found) == ["float32", "channels_last", "fused", "channels_last + fused"]


def test_every_step_recomputes_accumulates_and_clips_as_the_recipe_says(short: Rule) -> None:
    """A batch of 4 in 3 micro-batches is one of 2 and one of 2; two batches are four of those."""
    recipe = Recipe("adamw", checkpointing="blocks", accumulate=3, clip=1.0)
    found = timed(run(short, "fused", recipe=recipe, counts=(2,)))
    assert list(found) == ["float32", "fused", "accumulate 2", "fused + accumulate 2"]
    for name, record in found.items():
        work = {count.name: count.counted for count in record.work}
        assert work["forwards"] == (4 if "accumulate" in name else 2)
        assert 0 < work["recomputed FLOPs"] < work["FLOPs"] / 3
        assert record.note.startswith("clipped to a norm of ")


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("rung", ["bf16", "fused"])
def test_a_step_with_half_of_its_gradients_is_not_timed(
    short: Rule, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32 alone, so that the proof in float64 does not see it."""
    step = TunedStep._step

    def halved(self: TunedStep, *args: Any) -> None:
        wrong = rung in self.rungs and self.parameters[0].dtype == torch.float32
        for group in self.optimizer.param_groups if wrong else ():
            group["lr"] *= 0.5 if not hasattr(self, "halved") else 1
        if wrong:
            self.halved = True  # type: ignore[attr-defined]
        step(self, *args)

    monkeypatch.setattr(TunedStep, "_step", halved)
    (failed,) = [record for record in run(short, rung) if record.status == "failed"]
    assert (combination(failed.case), failed.reason) == (rung, Reason.NOT_PROVEN)
    assert ("loss" if rung == "bf16" else "change in") in failed.note


def test_what_fails_alone_is_a_failed_record_and_is_added_to_nothing(
    short: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        plain_calls, calls = 0, 0

        def __init__(self, function: Any) -> None:
            pass

        def __call__(self, *args: Any) -> None:
            raise RuntimeError("InductorError: the compiler crashed\nat line 3")

    monkeypatch.setattr(tuned_step, "Compiled", Broken)
    monkeypatch.setattr(tuned_step, "no_compiler", lambda device: "")
    records = run(short, "compile", "fused")
    (failed,) = [record for record in records if record.status == "failed"]
    assert (combination(failed.case), failed.note) == ("compile", "RuntimeError: InductorError: the compiler crashed")
    assert list(timed(records)) == ["float32", "fused"]


@pytest.mark.parametrize("compiled_calls", [0, 3])
def test_code_that_does_not_run_compiled_has_failed_even_if_it_did_when_it_was_proven(
    short: Rule, monkeypatch: pytest.MonkeyPatch, compiled_calls: int
) -> None:
    """Dynamo gives up silently, at once or, as PyTorch 2.11 did after a step was counted, later."""

    class GivesUp(compiled.Compiled):
        calls = 0

        def __call__(self, *args: Any) -> Any:
            self.calls += 1
            with torch.compiler.set_stance("default" if self.calls <= compiled_calls else "force_eager"):
                return super().__call__(*args)

    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: lambda module, inputs: module.forward)
    monkeypatch.setattr(tuned_step, "Compiled", GivesUp)
    monkeypatch.setattr(tuned_step, "no_compiler", lambda device: "")
    (failed,) = [record for record in run(short, "compile") if record.status == "failed"]
    assert failed.reason is Reason.NOT_PROVEN
    assert "forwards in which no compiled code ran" in failed.note


def test_the_first_compiled_step_is_a_record_of_its_own_and_in_no_sample(
    short: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling takes 0.3 s here, once in each step that is built."""
    import time

    class Slow:
        plain_calls, calls = 0, 0

        def __init__(self, function: Any) -> None:
            self.function, self.pause = function, 0.3

        def __call__(self, *args: Any) -> Any:
            time.sleep(self.pause)
            self.pause = 0
            self.calls += 1
            return self.function(*args)

    monkeypatch.setattr(tuned_step, "Compiled", Slow)
    monkeypatch.setattr(tuned_step, "no_compiler", lambda device: "")
    records = run(short, "compile")
    (compiling,) = [record for record in records if record.metric == "compile_time"]
    (stepping,) = [r for r in records if r.metric == "step_time" and "compile" in r.case and r.samples]
    assert compiling.case == stepping.case
    assert compiling.median >= 0.3
    assert stepping.median < 0.3


def test_once_the_time_is_over_the_rest_is_left_out(short: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping_rule, "budget_left", lambda: -1)
    (record,) = run(short, "fused")
    assert record.status == "skipped"
    assert "time budget was used up" in record.note


def test_from_a_recipe_in_bf16_every_step_is_in_it(rule: Rule) -> None:
    """float32 and bf16 itself are not tried; on the plain step the others are as ever."""
    records = run(rule, "tf32", "bf16", "fused", base=("bf16",), counts=(2,))
    steps = timed(records)
    assert list(steps) == ["bf16", "bf16 + fused", "bf16 + accumulate 2", "bf16 + fused + accumulate 2"]
    assert all({check.dtype for check in step.checks} == {"float64", "bfloat16"} for step in steps.values())
    work = {count.name: count.counted for count in steps["bf16"].work}
    assert work["FLOPs"] > work["float32 FLOPs"] == 0
    skipped = {rungs_of(record.case): record.note for record in records if record.status == "skipped"}
    assert ("float32" in steps, ("bf16",) in skipped) == (False, False)
    assert skipped["bf16", "tf32"] == ladders.NO_FLOAT32
