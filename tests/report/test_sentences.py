"""What changed between like hardware, in a sentence: what differs, what became slower or faster, what is unknown."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from scalecard.analysis.compare import Change, Comparison, Fact, Scope, compare
from scalecard.records.record import Record, Result
from scalecard.report.changes_text import change, occasion, sentence
from support.builders import repeated, timed

GPUS = {"kind": "cuda", "gpus": ["NVIDIA H100 80GB HBM3"] * 8, "num_devices": 8}
Compare = Callable[..., Comparison]
ENVIRONMENT, DRIVER = Scope.ENVIRONMENT, (Scope.MACHINE, "driver", "1", "2")


@pytest.fixture
def compared(make_result: Callable[..., Result]) -> Compare:
    """The comparison of these records by experiment on eight GPUs, before and after a new driver."""

    facts = make_result([]).environment

    def side(driver: str, records: Mapping[str, list[Record]]) -> list[Result]:
        environment = {**facts, "machine": {**facts["machine"], **GPUS, "driver": driver}}
        return [
            make_result(own, experiment=name, platform=driver, environment=environment) for name, own in records.items()
        ]

    def of(old: Mapping[str, list[Record]], new: Mapping[str, list[Record]]) -> Comparison:
        return compare(side("575", old), side("580", new))

    return of


def cases(count: int, *, low: float = 1.0, high: float = 1.0, seed: int = 0, spread: float = 0.0005) -> list[Record]:
    """So many cases of 1 s, times factors evenly between the two."""
    draw = random.Random(seed)
    steps = [low + (high - low) * place / max(1, count - 1) for place in range(count)]
    return [
        timed(
            *([step * draw.gauss(1, spread) * (1 + 1e-5 * i) for i in range(8)] for _ in range(5)),
            rounds_id=str(draw.random()),
            number=number,
        )
        for number, step in enumerate(steps)
    ]


def test_a_planted_slow_down_of_one_kind_is_told_with_its_range(compared: Compare) -> None:
    old = {"allreduce": cases(27), "ddp": cases(9, seed=1), "pipeline": cases(9, seed=2)}
    new = {**old, "allreduce": cases(27, low=1.07, high=1.08, seed=3), "ddp": cases(9, seed=4)}
    assert (
        sentence(compared(old, new))
        == "After driver 575 -> 580: all-reduce 7 to 8 % slower in 27 of 27 cases; training unchanged."
    )


def test_training_is_not_unchanged_if_a_part_of_it_changed(compared: Compare) -> None:
    old = {"ddp": cases(4), "hybrid": cases(4, seed=1), "pipeline": cases(4, seed=2)}
    new = {**old, "ddp": cases(4, low=0.8, high=0.8, seed=3)}
    assert sentence(compared(old, new)) == (
        "After driver 575 -> 580: DistributedDataParallel 20 % faster in 4 of 4 cases;"
        " pipelines and data and model together unchanged."
    )


def test_both_directions_of_one_kind_are_told(compared: Compare) -> None:
    old = {"copy_cost": cases(12)}
    new = {
        "copy_cost": [
            *cases(12, seed=1)[:8],
            *cases(12, low=1.2, high=1.2, seed=2)[8:10],
            *cases(12, low=0.5, high=0.5)[10:],
        ]
    }
    assert sentence(compared(old, new)) == (
        "After driver 575 -> 580: copies 20 % slower in 2 of 12 cases and 50 % faster in 2 of 12 cases."
    )


def test_if_nothing_changed_it_is_told_of_how_many_cases(compared: Compare) -> None:
    same = {"allreduce": cases(6), "ddp": cases(4, seed=1)}
    assert sentence(compared(same, same)) == "After driver 575 -> 580: nothing became slower or faster in 10 cases."


def test_too_few_samples_tell_nothing(compared: Compare) -> None:
    few = [timed([1.0, 1.01], rounds_id="few", number=number) for number in range(3)]
    assert sentence(compared({"ddp": few}, {"ddp": [replace(r, telemetry=[]) for r in few]})) == (
        "After driver 575 -> 580: whether anything became slower or faster cannot be told in 3 cases (too few samples)."
    )


def test_what_cannot_be_told_stands_beside_what_changed(compared: Compare) -> None:
    """Unsteady cases are neither slower nor the same; those of another workload are not compared."""
    unsteady = [repeated(1.0, spread=0.05, number=number) for number in range(3)]
    shaken = [repeated(1.001, spread=0.05, number=number) for number in range(3)]
    old = {"allreduce": cases(5), "input": unsteady}
    new = {"allreduce": cases(5, low=1.5, high=1.5, seed=1), "input": shaken}
    found = compared(old, new)
    assert sentence(found) == (
        "After driver 575 -> 580: all-reduce 50 % slower in 5 of 5 cases; loading data cannot be told."
    )


def test_what_is_unchanged_in_part_is_told_with_how_many_cases(compared: Compare) -> None:
    unsteady = [[repeated(mean, spread=0.05, number=number) for number in (8, 9)] for mean in (1.0, 1.001)]
    old = {"allreduce": cases(5), "input": [*cases(3, seed=1), *unsteady[0]]}
    new = {"allreduce": cases(5, low=1.5, high=1.5), "input": [*cases(3, seed=2), *unsteady[1]]}
    assert sentence(compared(old, new)).endswith("; loading data unchanged in 3 of 5 cases, the others cannot be told.")


def test_another_workload_is_not_called_unchanged(make_result: Callable[..., Result]) -> None:
    facts = make_result([]).environment
    old, new = (
        [
            make_result(cases(2), spec={"size": size}, environment=facts),
            make_result(cases(3, seed=1), experiment="ddp", environment=facts),
        ]
        for size in (1, 2)
    )
    assert sentence(compare(old, new)) == (
        "In the same environment: nothing became slower or faster in 3 cases;"
        " asynchronous timing not compared (different workload)."
    )


def test_of_many_kinds_those_that_changed_the_most_are_told_one_by_one(compared: Compare) -> None:
    names = ["allreduce", "copy_cost", "async_timing", "ddp", "hybrid", "pipeline", "tuning"]
    old = {name: cases(3) for name in names}
    new = {name: cases(3, low=1.1 + 0.1 * i, high=1.1 + 0.1 * i, seed=1) for i, name in enumerate(names)}
    told = sentence(compared(old, new)).split("; ")
    assert told[0].endswith("tuning one device 70 % slower in 3 of 3 cases")
    assert told[-1] == "copies and all-reduce 10 to 20 % slower in 6 of 6 cases."
    assert len(told) == 6


def test_more_names_than_a_sentence_holds_are_not_listed(compared: Compare) -> None:
    hardware = ["allreduce", "copy_cost", "async_timing", "input", "ddp", "hybrid"]
    old = {"allreduce": cases(2), **{name: cases(2, seed=1) for name in hardware[1:]}}
    health = {"health": [replace(r, case={**r.case, "part": part}) for part in ("memory", "load") for r in cases(2)]}
    worse = [replace(r, case={**r.case, "part": "load"}) for r in cases(2, low=1.3, high=1.3, seed=2)]
    told = sentence(compared(old | health, old | {"health": [*health["health"][:2], *worse]}))
    assert told == "After driver 575 -> 580: health (load) 30 % slower in 2 of 2 cases; everything else unchanged."


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([], "In the same environment"),
        ([(ENVIRONMENT, "commit", "a", "b"), DRIVER], "After driver 1 -> 2 and commit a -> b"),
        ([(Scope.MACHINE, "gpu_uuid_hashes", ["a", "b"], ["c", "d"])], "After other boards"),
        ([(Scope.GPU, "ecc", True, False), (Scope.MACHINE, "cpu", "a", "b"), (ENVIRONMENT, "os", "1", "2"),
          (ENVIRONMENT, "torch", "1", "2"), (ENVIRONMENT, "cuda", "1", "2")],
         "After torch 1 -> 2, cuda 1 -> 2, os 1 -> 2 and 2 more changes"),
    ],
)  # fmt: skip
def test_the_likely_cause_comes_first(changes: list[tuple[Scope, str, Any, Any]], told: str) -> None:
    assert occasion([Change(Fact(of, key), old, new) for of, key, old, new in changes]) == told


@pytest.mark.parametrize(
    ("fact", "old", "new", "told"),
    [
        (Fact(Scope.MACHINE, "gpus"), (8, "H100"), (0,), "GPUs 8 x H100 -> none"),
        (Fact(Scope.MACHINE, "gpu_uuid_hashes"), ["a"], ["b", "c"], "boards a -> b, c"),
        (Fact(Scope.MACHINE, "driver"), None, "580", "driver not known -> 580"),
        (Fact(Scope.GPU, "power_limit_w"), 700.0, [700.0, 650.5], "GPU power limit w 700 -> 700, 650.5"),
        (Fact(ENVIRONMENT, "commit"), "1" * 40, "2" * 40, f"commit {'1' * 12} -> {'2' * 12}"),
        (Fact(ENVIRONMENT, "cgroup_cpu_max"), None, "max", "cgroup cpu max not known -> max"),
        (Fact(Scope.WORKLOAD, "batch_size"), None, 8, "batch_size all -> 8"),
    ],
)
def test_a_fact_is_told_with_both_of_its_values(fact: Fact, old: Any, new: Any, told: str) -> None:
    assert change(Change(fact, old, new)) == told
