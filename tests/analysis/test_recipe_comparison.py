"""A workload by other recipes beside its own, on made-up results whose truth is known."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from scalecard.analysis.platforms import PlatformResults
from scalecard.analysis.strategy_choice import StrategyRun, best_by_recipe, precision, recipe_runs
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.records.strategies import OTHER_RECIPE
from scalecard.report.advice_text import sentences
from scalecard.report.answers import use
from support.eight_gpus import GIB, case_of, measured, step, timed

Make = Callable[..., Result]
BF16: Case = {"precision": "bf16"}
AGAIN: Case = {**BF16, "checkpointing": "blocks"}


def own(strategy: str, devices: int, seconds: float, scaling: str = "weak") -> Record:
    """In bf16."""
    made = step(strategy, devices, seconds, scaling)
    return replace(made, case={**made.case, **BF16})


def other(strategy: str, devices: int, seconds: float, recipe: Case) -> Record:
    case = {**case_of(strategy, devices, "strong" if devices == 1 else "weak"), **recipe}
    return timed(case, seconds, f"other recipe {recipe} {devices}", metric=OTHER_RECIPE["step_time"])


def memory(step: Record, gib: float) -> Record:
    metric = "peak_memory" if step.metric == "step_time" else OTHER_RECIPE["peak_memory"]
    return Record(case=step.case, metric=metric, unit="B", samples=[[gib * GIB]])


def largest(step: Record, samples: float) -> Record:
    metric = "largest_batch" if step.metric == "step_time" else OTHER_RECIPE["largest_batch"]
    axes = ("workload", "strategy", "devices", "precision", "checkpointing")
    case: Case = {axis: step.case[axis] for axis in axes if axis in step.case}
    return Record(case=case, metric=metric, unit="samples", samples=[[samples]])


# In bf16 DDP hides its gradients no longer, and FSDP is faster; in float32 DDP is.
IN_BF16 = [own("single device", 1, 0.010, "strong"), own("DDP", 8, 0.020), own("FSDP gradients", 8, 0.015)]
IN_FLOAT32 = [other("single device", 1, 0.090, {}), other("DDP", 8, 0.092, {}), other("FSDP gradients", 8, 0.100, {})]
RECOMPUTED = [other("DDP", 8, 0.023, AGAIN), other("FSDP gradients", 8, 0.019, AGAIN)]


def of(make_result: Make, records: Sequence[Record]) -> Result:
    result = measured(make_result, strategies=records).of("strategies")
    assert result is not None
    return result


def runs(make_result: Make, *records: Record) -> list[StrategyRun]:
    return recipe_runs(of(make_result, records), "gpt")


def named(found: Sequence[StrategyRun]) -> list[tuple[str, str, int, bool]]:
    return [(one.precision, one.strategy, one.devices, one.own) for one in found]


def test_every_recipe_by_what_was_timed_of_all_the_fastest_first(make_result: Make) -> None:
    """Of its own recipe neither another scaling nor what one process drives, which the others have not."""
    elsewhere = [own("DDP", 8, 0.01, "strong"), own("DDP", 4, 0.02), own("DataParallel", 8, 0.001)]
    assert named(runs(make_result, *IN_BF16, *elsewhere, *IN_FLOAT32)) == [
        ("bf16", "FSDP gradients", 8, True),
        ("bf16", "DDP", 8, True),
        ("float32", "DDP", 8, False),
        ("float32", "FSDP gradients", 8, False),
        ("bf16", "single device", 1, True),
        ("float32", "single device", 1, False),
    ]


def test_nothing_is_compared_with_itself(make_result: Make) -> None:
    assert not runs(make_result, *IN_BF16)
    assert not runs(make_result, *IN_FLOAT32)


def test_the_best_strategy_flips_where_each_is_surely_slower_by_the_other_recipe(make_result: Make) -> None:
    """With recomputed blocks it is the same one."""
    mine, *others = best_by_recipe(runs(make_result, *IN_BF16, *IN_FLOAT32, *RECOMPUTED))
    assert (mine.best.own, mine.best.strategy) == (True, "FSDP gradients")
    assert [(each.best.recipe, each.best.strategy, each.flips(mine)) for each in others] == [
        (("bf16", "blocks"), "FSDP gradients", False),
        (("float32", "none"), "DDP", True),
    ]


def test_a_workload_is_called_by_its_own_recipe_whatever_others_it_was_trained_by(make_result: Make) -> None:
    """In float32, which goes without saying, beside bf16; and of what no GPU here can be trained in."""
    steps = [step("single device", 1, 0.09), step("DDP", 8, 0.092, "weak"), other("DDP", 8, 0.02, BF16)]
    lacking = Record.skipped({"workload": "gpt", **BF16}, "this GPU lacks bf16", metric=OTHER_RECIPE["step_time"])
    result = of(make_result, [lacking, *reversed(steps)])
    assert precision(result, "gpt") == "float32"
    assert all(one.text.startswith("gpt, plain SGD in float32: ") for one in sentences(result, "gpt"))


def test_on_one_device_the_advice_names_no_strategy(make_result: Make) -> None:
    single = [step("single device", 1, 0.09), other("single device", 1, 0.01, BF16)]
    (said,) = [one.text for one in sentences(of(make_result, single), "gpt") if "beside" in one.text]
    assert said.startswith("gpt, plain SGD in float32: beside one device with 64 samples, bf16 needs 0.11x")
    assert said.endswith("the time.")


def test_what_is_hardly_slower_is_not_beaten(make_result: Make) -> None:
    """Recipes are not timed in the same rounds."""
    close = [own("DDP", 8, 0.0200), other("DDP", 8, 0.02001, {})]
    fast, slow = runs(make_result, *close, memory(close[0], 10), memory(close[1], 10))
    assert not slow.is_dominated_by(fast)


def test_what_cannot_be_told_apart_flips_nothing(make_result: Make) -> None:
    close = [other("DDP", 8, 0.0999, {}), other("FSDP gradients", 8, 0.1, {})]
    mine, float32 = best_by_recipe(runs(make_result, *IN_BF16, *close))
    assert not float32.flips(mine)


@pytest.mark.parametrize(
    ("gib", "samples", "dominated"),
    [((10, 10), (64, 64), True), ((10, 8), (64, 64), False), ((10, 10), (64, 80), False)],
)
def test_what_is_slower_is_kept_only_for_its_memory_or_its_largest_batch(
    make_result: Make, gib: tuple[float, float], samples: tuple[float, float], dominated: bool
) -> None:
    ours, theirs = IN_BF16[2], IN_FLOAT32[1]
    records = [memory(ours, gib[0]), memory(theirs, gib[1]), largest(ours, samples[0]), largest(theirs, samples[1])]
    fast, slow = runs(make_result, ours, theirs, *records)
    assert (slow.memory, slow.largest_batch) == (gib[1] * GIB, samples[1])
    assert (slow.is_dominated_by(fast), fast.is_dominated_by(slow)) == (dominated, False)


def test_without_memory_the_fastest_of_each_recipe_is_kept(make_result: Make) -> None:
    found = runs(make_result, *IN_BF16, *IN_FLOAT32)
    kept = [one for one in found if not any(one.is_dominated_by(each) for each in found)]
    assert named(kept) == [
        ("bf16", "FSDP gradients", 8, True),
        ("float32", "DDP", 8, False),
        ("bf16", "single device", 1, True),
        ("float32", "single device", 1, False),
    ]


def test_the_advice_says_what_other_recipes_need_and_that_the_best_strategy_changes(make_result: Make) -> None:
    held = [memory(IN_BF16[2], 20), memory(RECOMPUTED[1], 8)]
    result = of(make_result, [*IN_BF16, *IN_FLOAT32, *RECOMPUTED, *held])
    (said,) = [one.text for one in sentences(result, "gpt") if "beside" in one.text]
    assert "beside FSDP gradients on 8 devices with 64 samples on each, bf16, blocks recomputed needs 1.27x" in said
    assert "the time and 40 % of the memory (by FSDP gradients); float32 needs 6.1" in said
    assert said.endswith("; in float32 DDP would be the fastest, and in bf16 it is FSDP gradients.")


def test_the_tables_mark_the_fastest_and_put_what_is_beaten_apart(make_result: Make) -> None:
    made = {t.label: t for t in tables(measured(make_result, strategies=[*IN_BF16, *IN_FLOAT32, *RECOMPUTED]))}
    kept, beaten = made["Recipes"], made["Recipes that others beat"]
    assert [[row[place] for place in (1, 2, -1)] for row in kept.texts] == [
        ["bf16 (its own)", "FSDP gradients", "yes"],
        ["bf16, blocks recomputed", "FSDP gradients", ""],
        ["float32", "DDP", ""],
        ["bf16 (its own)", "single device", "yes"],
        ["float32", "single device", ""],
    ]
    assert [row[2] for row in beaten.texts] == ["DDP", "DDP", "FSDP gradients"]


def tables(found: PlatformResults) -> list[use.Table]:
    return [table for table in use.tables(found) if "Recipes" in table.label]
