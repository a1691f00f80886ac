"""A workload by its own recipe and by others on the same devices: what each needs, and whether the best changes.

Strategies of one recipe were timed in the same rounds. Those of two recipes were not, so that drift of the machine
comes between them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scalecard.analysis import step_records
from scalecard.analysis.strategy_choice import Choice, StrategyRun, choose, strategy_runs
from scalecard.records import strategies
from scalecard.records.record import Result
from scalecard.records.strategies import OTHER_RECIPE


@dataclass(frozen=True)
class RecipeRun:
    """A strategy by a recipe; `memory` of the fullest device in bytes, the `largest` batch of each: 0 if unknown."""

    run: StrategyRun
    memory: float
    largest: float

    @property
    def own(self) -> bool:
        """Whether it is the workload's own."""
        return self.run.step.metric not in OTHER_RECIPE.values()

    @property
    def recipe(self) -> tuple[str, str]:
        """The precision, and what is recomputed."""
        return self.run.precision, self.run.step.text("checkpointing", "none")

    def is_dominated_by(self, other: "RecipeRun") -> bool:
        """Whether that one is surely faster on as many devices, needs no more memory, and lets the batch grow as far.

        Where memory is not known, whether it is surely faster by the same recipe.
        """
        if self.memory and other.memory:
            known = self.largest and other.largest
            beaten = self.memory >= other.memory and not (known and self.largest > other.largest)
        else:
            beaten = self.recipe == other.recipe
        able = beaten and self.run.devices == other.run.devices and self.run.rate < other.run.rate
        return able and self.run.time_over(other.run).verdict == "slower"


def recipe_runs(result: Result, workload: str) -> list[RecipeRun]:
    """Those on the most devices first, and of them the fastest; empty if it was trained by no recipe but its own.

    Of its own what was also measured by the others: on one device and on all of a node, by ranks, at their scaling.
    """
    alone = step_records.single(result, workload)
    others = [StrategyRun(step, alone) for step in result.select(OTHER_RECIPE["step_time"], workload=workload)]
    places = {(run.devices, run.scaling) for run in others}
    own = [
        run
        for run in strategy_runs(result, workload)
        if run.fits
        and run.nodes == 1
        and (run.devices, run.scaling) in places
        and (run.devices == 1 or strategies.of(run.strategy).on_ranks)
    ]
    made = [_with_memory(result, run) for run in (*own, *others)] if own else []
    return sorted(made, key=lambda one: (-one.run.devices, -one.run.rate))


def _with_memory(result: Result, run: StrategyRun) -> RecipeRun:
    peak, most = step_records.memory(result, run.step), step_records.largest_batch(result, run.step)
    return RecipeRun(run, peak.median if peak else 0.0, most.median if most else 0.0)


@dataclass(frozen=True)
class Best:
    """The best strategy by a recipe on the most devices, beside those of the same rounds."""

    one: RecipeRun
    choice: Choice

    def flips(self, own: "Best") -> bool:
        """Whether each of the two strategies is surely slower than the other by the other's recipe."""
        return _is_worse(self.one.run, own.choice) and _is_worse(own.one.run, self.choice)


def _is_worse(run: StrategyRun, than: Choice) -> bool:
    return any(one.strategy == run.strategy and ratio.verdict == "slower" for one, ratio in than.others)


def best_by_recipe(found: Sequence[RecipeRun]) -> Iterator[Best]:
    """The workload's own recipe first, then the others by their fastest."""
    most = [one for one in found if one.run.devices == found[0].run.devices]
    most.sort(key=lambda one: not one.own)
    for recipe in dict.fromkeys(one.recipe for one in most):
        by_recipe = [one for one in most if one.recipe == recipe]
        choice = choose([one.run for one in by_recipe], by_recipe[0].run.scaling)
        if choice:
            yield Best(next(one for one in by_recipe if one.run is choice.best), choice)
