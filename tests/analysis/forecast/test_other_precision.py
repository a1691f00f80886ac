"""One precision's steps forecast from the parts of another, against steps worked out by hand and a cluster's truth.

The machine made up here has four devices that hide nothing of what they exchange. A step of one device takes 40 ms in
float32 and 10 ms in bf16. Gradients have 400 MB, of which three quarters pass each link at 100 GB/s: 3 ms. DDP's
all-reduce passes them twice, in either precision. FSDP gathers parameters twice, in bf16 half as many bytes, and
scatters gradients once. So DDP takes 40 + 6 and 10 + 6 ms, FSDP 40 + 9 and 10 + 6.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scalecard.analysis.forecast.fitted_terms import NUM, Overlap
from scalecard.analysis.forecast.forecast import Forecast, OtherPrecision, in_other_precision
from scalecard.analysis.forecast.model import DataParallel, Settings
from scalecard.analysis.forecast.network import Layout
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.records.strategies import DDP, FSDP_PARAMETERS, OTHER_RECIPE
from support.builders import timed
from support.forecast_results import also_in_bf16, found, results
from support.health_boxes import Box
from support.simulated_clusters import count, drawn, simulated, true_step

BYTES, RATE = 400e6, 1e11
SECONDS = {"float32": 0.040, "bf16": 0.010}
STEPS = {("float32", DDP): 0.046, ("float32", FSDP_PARAMETERS): 0.049, ("bf16", DDP): 0.016}
STEPS["bf16", FSDP_PARAMETERS] = 0.016
DIRECTIONS = pytest.mark.parametrize(("parts", "other"), [("float32", "bf16"), ("bf16", "float32")])
CHECKPOINTED: Case = {"checkpointing": "blocks"}


class Exposed(DataParallel):
    """A step waits for all of its exchange, and for nothing else."""

    overlap = Overlap(*(np.full(NUM, value) for value in (1.0, 1.0, 0.0, 0.0, 0.0)))


def step(strategy: str, devices: int, seconds: float, precision: str, metric: str = "step_time") -> Record:
    about: Case = {"precision": precision} if precision != "float32" else {}
    scaling = "weak" if devices > 1 else "strong"
    case: Case = {"strategy": strategy, "scaling": scaling, "batch_size": 8 * devices, **about}
    return timed([seconds] * 12, metric=metric, workload="gpt", devices=devices, **case)


def of_own_recipe(precision: str) -> Iterator[Record]:
    """One device, DDP and FSDP on two and four, and what DDP's ranks compute."""
    yield step("single device", 1, SECONDS[precision], precision)
    for devices in (2, 4):
        yield step("DDP", devices, STEPS[precision, DDP], precision)
        yield step("FSDP parameters", devices, STEPS[precision, FSDP_PARAMETERS], precision)
    yield step("DDP", 2, SECONDS[precision], precision, "unsynchronised_time")
    work = [count("all-reduced bytes", BYTES), count("all-reduces", 1)]
    yield replace(step("DDP", 2, BYTES / RATE, precision, "exchange_time"), work=work)


def of_other_recipe(precision: str, *, slower: float = 1.0, recipe: Case | None = None) -> Iterator[Record]:
    """One device, and DDP and FSDP on four, whose exchange takes `slower` times as long."""
    metric, alone = OTHER_RECIPE["step_time"], SECONDS[precision]
    steps = [step("single device", 1, alone, precision, metric)]
    for strategy in (DDP, FSDP_PARAMETERS):
        seconds = alone + slower * (STEPS[precision, strategy] - alone)
        steps.append(step(strategy.name, 4, seconds, precision, metric))
    return (replace(one, case={**one.case, **(recipe or {})}) for one in steps)


def collectives() -> Iterator[Record]:
    for name, passes in (("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)):
        for devices in (2, 4):
            for size in (2**k for k in range(20, 32, 2)):
                seconds = passes * (devices - 1) / devices * size / RATE
                yield timed([seconds] * 12, part="collective", collective=name, devices=devices, bytes=size)


def held_out(*records: Record) -> dict[str, OtherPrecision]:
    """By strategy, with a model that knows what this machine hides."""
    health = Box(count=4, switched=18).result()
    made = {
        "strategies": replace(health, experiment="strategies", spec={"micro_batches": 8}, records=[*records]),
        "health": replace(health, records=[*collectives()]),
    }
    of = found(made).values()
    exposed = [
        Forecast(Exposed(one.model.workload, one.model.network, one.model.strategy, one.model.scaling), Settings())
        for one in of
    ]
    return {one.own.model.strategy.name: one for one in in_other_precision(exposed)}


@DIRECTIONS
def test_a_machine_as_the_model_has_it_is_forecast_without_error(parts: str, other: str) -> None:
    made = held_out(*of_own_recipe(parts), *of_other_recipe(other))
    assert {*made} == {"DDP", "FSDP parameters"}
    for strategy in (DDP, FSDP_PARAMETERS):
        one = made[strategy.name]
        assert (one.own.model.workload.precision, one.precision) == (parts, other)
        assert one.held_out.layout == Layout(4)
        assert one.held_out.forecast == pytest.approx(STEPS[other, strategy], rel=0.005)
        assert one.held_out.measured.median == STEPS[other, strategy]
        assert one.held_out.error == pytest.approx(0, abs=0.005)
        assert one.within
        assert one.within.error == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize(
    ("parts", "other", "ddp", "fsdp"),
    [("float32", "bf16", 16 / 22 - 1, 16 / 22 - 1), ("bf16", "float32", 46 / 52 - 1, 49 / 58 - 1)],
)
def test_an_exchange_that_takes_twice_as_long_there_is_the_error(
    parts: str, other: str, ddp: float, fsdp: float
) -> None:
    """Over what was measured: 10 + 12 ms, and 40 + 12 and 40 + 18."""
    made = held_out(*of_own_recipe(parts), *of_other_recipe(other, slower=2))
    assert made["DDP"].held_out.error == pytest.approx(ddp, abs=0.005)
    assert made["FSDP parameters"].held_out.error == pytest.approx(fsdp, abs=0.005)


@DIRECTIONS
def test_recipes_that_differ_in_more_than_precision_are_no_pair(parts: str, other: str) -> None:
    own, others = list(of_own_recipe(parts)), list(of_other_recipe(other))
    recomputed = list(of_other_recipe(other, recipe=CHECKPOINTED))
    assert not held_out(*own)
    assert not held_out(*own, *of_other_recipe(parts, recipe=CHECKPOINTED), *recomputed)
    assert not held_out(*own, *recomputed[:1], *others[1:]), "one device was not timed in the other precision"
    assert {*held_out(*own, *others[:2])} == {"DDP"}
    of_checkpointed = [replace(one, case={**one.case, **CHECKPOINTED}) for one in own]
    made = held_out(*of_checkpointed, *of_other_recipe(other, slower=9), *recomputed)
    assert made["DDP"].held_out.error == pytest.approx(0, abs=0.005)


def test_a_pipelines_step_is_in_proportion_to_what_one_device_takes() -> None:
    """A quarter of the time of all: the error is that within the recipe."""
    steps = [one for one in results()["strategies"].select("step_time") if one.case["devices"] in (1, 8)]
    made = in_other_precision(list(found(also_in_bf16(results(), steps, factor=0.25)).values()))
    pipelines = [one for one in made if one.own.model.strategy.name == "our gpipe"]
    assert {one.own.model.scaling for one in pipelines} == {"strong", "weak"}
    for one in pipelines:
        assert one.within
        assert one.held_out.error == pytest.approx(one.within.error, abs=0.002)


@pytest.mark.parametrize("faster", [4.0, 0.25])
@pytest.mark.parametrize("seed", [101, 102, 103])
def test_what_overlaps_by_one_pace_tells_the_steps_at_another(seed: int, faster: float) -> None:
    """Of simulated clusters that compute four times as fast, or a quarter."""
    other = replace(drawn(None, seed), per_node=8)
    other = replace(other, work=other.work / faster)
    of = simulated(8, seed=seed)
    alone, ddp = (
        one
        for name, devices in (("single device", 1), ("DDP", 8))
        for one in of["strategies"].select("step_time", strategy=name, devices=devices)[-1:]
    )
    truths = [(alone, true_step(other, "DDP", 1, "strong")), (ddp, true_step(other, "DDP", 8, "weak"))]
    steps = [replace(one, samples=[[seconds] * 12]) for one, seconds in truths]
    (made,) = in_other_precision(list(found(also_in_bf16(of, steps)).values()))
    assert abs(made.held_out.error) < 0.02
