"""Simulated clusters' results, changed results, and their forecasts by strategy and scaling."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scalecard.analysis.forecast.forecast import Forecast, forecasts
from scalecard.analysis.forecast.model import Settings
from scalecard.records.record import Record, Result
from scalecard.records.strategies import OTHER_RECIPE

from support.simulated_clusters import Cause, simulated

Results = Mapping[str, Result]


@functools.cache
def results(cause: Cause | None = None, devices: int = 8, nodes: int = 1, seed: int = 101) -> dict[str, Result]:
    return simulated(devices, cause=cause, nodes=nodes, seed=seed)


def found(of: Results, settings: Settings | None = None) -> dict[tuple[str, str], Forecast]:
    every = forecasts(of, settings or Settings())
    return {(one.model.strategy.name, one.model.scaling): one for one in every}


def also_in_bf16(of: Results, steps: Sequence[Record], *, factor: float = 1.0) -> Results:
    """With these steps by another recipe, in `factor` times their time; its own is in float32."""
    others = [
        replace(
            one,
            metric=OTHER_RECIPE["step_time"],
            case={**one.case, "precision": "bf16"},
            samples=[[factor * seconds for seconds in run] for run in one.samples],
        )
        for one in steps
    ]
    return {**of, "strategies": replace(of["strategies"], records=[*of["strategies"].records, *others])}


def changed(of: Results, experiment: str, change: "dict[str, float]", **case: object) -> dict[str, Result]:
    """Records of a metric, at these values of the case, with their samples multiplied; 0 leaves them out."""

    def record(one: Record) -> Record | None:
        factor = change.get(one.metric, 1.0) if all(one.case.get(k) == v for k, v in case.items()) else 1.0
        return replace(one, samples=[[factor * s for s in run] for run in one.samples]) if factor else None

    records = [new for one in of[experiment].records if (new := record(one))]
    return {**of, experiment: replace(of[experiment], records=records)}
