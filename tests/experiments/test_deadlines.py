"""One group cannot eat what the next one needs, and what a headline rests on comes first."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from scalecard import experiments
from scalecard.distributed import Layout
from scalecard.experiments import allreduce, ddp, dp_concise, strategies, tuning
from scalecard.hardware.machine import Machine
from scalecard.measuring.stopping_rule import begin_budget, budget_left, coarse_to_fine
from scalecard.records.axes import Case
from scalecard.records.record import Record
from support.blocks import block

LOADS = {"toy": {"batch_size": 4}, "lenet": {"batch_size": 4}}


@pytest.fixture(autouse=True)
def of_100_seconds() -> Iterator[None]:
    begin_budget(100, 0)
    yield
    begin_budget(0, 0)


def test_each_workload_is_measured_alone_and_on_all_ranks_before_any_other_way(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[tuple[str, float]]()

    def launched(spec: Any, machine: Machine, turn: strategies.Turn) -> list[Record]:
        found.append((str(turn), budget_left()))
        return []

    monkeypatch.setattr(strategies, "_launched", launched)
    monkeypatch.setattr(strategies, "_examined", lambda spec, machine: (spec.loads, [], []))
    spec = experiments.build("strategies", block("strategies", workloads=LOADS))
    list(strategies.run(spec, replace(machine, num_devices=4)))
    turns = [turn for turn, _ in found]
    ways = ["one process on 1 device", "4 ranks", "one process on 2 devices", "one process on 4 devices", "2 ranks"]
    saving = [f"{name}, 4 ranks, checkpoints" for name in LOADS]
    assert turns == [*(f"{name}, {way}" for way in ways for name in LOADS), *saving]
    parts = [round(seconds) for _, seconds in found]
    assert parts[:4] == [25, 33, 50, 100], "the headline, which took nothing"
    assert parts[4:] == [round(100 / n) for n in range(len(turns) - 4, 0, -1)], "each has its part of what is left"
    found.clear()
    list(strategies.run(spec, replace(machine, num_devices=4, kind="cuda")))
    batches = [turn for turn, _ in found if turn.endswith(", largest batches")]
    assert [turn for turn, _ in found] == [*turns[: -len(saving)], *batches, *saving]
    assert len(batches) == len(turns) - len(saving)


def test_the_librarys_all_reduce_comes_before_ours_and_leaves_it_a_third(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[tuple[str, int]]()

    def launched(*args: Any, layout: Layout, cases: list[tuple[Case, str]], **options: Any) -> list[Record]:
        assert [case["bytes"] for case, _ in cases] == [400, 4, 40]
        found.append((str(layout), round(budget_left())))
        return []

    def ours(spec: Any, machine: Machine) -> Iterator[Record]:
        found.append(("ours", round(budget_left())))
        return iter(())

    monkeypatch.setattr(allreduce, "launch_and_record", launched)
    monkeypatch.setattr(allreduce, "_within_one_process", ours)
    monkeypatch.setattr(allreduce, "proven_on_more_ranks", lambda *args, **options: {})
    spec = experiments.build("allreduce", block("allreduce", bytes=[4, 40, 400]))
    list(allreduce.run(spec, replace(machine, num_devices=4)))
    assert found == [("4 ranks", 67), ("2 ranks", 67), ("ours", 100)], "what others leave is there for it"


def test_ddp_measures_every_models_scaling_before_any_ones_options(machine: Machine) -> None:
    spec = experiments.build("ddp", block("ddp", models=["lenet", "resnet18"], accuracy_models=["lenet"]))
    two = replace(machine, num_devices=2)
    assert list(map(str, ddp._turns(spec, two, Layout(2)))) == [
        "lenet: scaling on 2 ranks",
        "resnet18: scaling on 2 ranks",
        "lenet: accuracy on 2 ranks",
        "lenet: one process on 2 ranks",
        "resnet18: one process on 2 ranks",
        "lenet: options on 2 ranks",
        "resnet18: options on 2 ranks",
    ]
    assert [turn.part for turn in ddp._turns(spec, two, Layout(1))] == ["scaling", "scaling", "accuracy"]


def test_the_textbooks_pair_comes_before_the_rest_of_the_grid() -> None:
    spec = experiments.build("dp_concise", block("dp_concise", batch_sizes=[256, 512], lrs=[0.1, 0.2]))
    pairs, others, counts = [(256, 0.1), (512, 0.2)], [(256, 0.2), (512, 0.1)], [1, 2, 4]
    assert list(dp_concise._settings(spec, [1])) == [*pairs, *others]
    settings = dp_concise._settings(spec, counts)
    assert list(settings) == [*pairs, (1024, 0.4), *others]
    assert [settings[at] for at in (*pairs, (1024, 0.4))] == [counts, counts, [4]]


@pytest.mark.parametrize(
    ("items", "order"),
    [
        ([], []),
        ([1], [1]),
        ([1, 2], [2, 1]),
        ([1, 2, 3], [3, 1, 2]),
        ([1, 2, 3, 4, 5, 6, 7], [7, 1, 4, 2, 5, 3, 6]),
    ],
)
def test_a_sweep_begins_with_its_ends(items: list[int], order: list[int]) -> None:
    assert coarse_to_fine(items) == order


def test_so_does_each_ladder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[float]()
    monkeypatch.setattr(tuning, "launch_and_record", lambda *args, **options: found.append(budget_left()) or [])
    spec = experiments.build("tuning", block("tuning", workloads=LOADS, epochs_of=None))
    list(tuning.run(spec, replace(machine, num_devices=2)))
    assert [round(seconds, -1) for seconds in found] == [50, 100, 50, 100], "those on one device are the headline"
