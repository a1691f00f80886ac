"""One workload cannot eat what the next one needs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from scalecard import experiments
from scalecard.experiments import strategies, tuning
from scalecard.hardware.machine import Machine
from scalecard.measuring.stopping_rule import begin_budget, budget_left
from scalecard.records.record import Record
from support.blocks import block

LOADS = {"toy": {"batch_size": 4}, "lenet": {"batch_size": 4}}


@pytest.fixture(autouse=True)
def of_100_seconds() -> Iterator[None]:
    begin_budget(100, 0)
    yield
    begin_budget(0, 0)


def test_each_workload_gets_its_part_of_what_is_left(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict[str, float]()

    def launched(work: Any, spec: Any, machine: Machine, workload: Any, *args: Any, **options: Any) -> Iterator[Record]:
        found.setdefault(workload.name, budget_left())
        return iter(())

    monkeypatch.setattr(strategies, "_launched", launched)
    monkeypatch.setattr(strategies, "_examined", lambda spec, machine: (spec.loads, []))
    list(strategies.run(experiments.build("strategies", block("strategies", workloads=LOADS)), machine))
    assert 40 < found["toy"] <= 50
    assert 90 < found["lenet"] <= 100, "it gets what the first one left"


def test_so_does_each_ladder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[float]()
    monkeypatch.setattr(tuning, "launch_and_record", lambda *args, **options: found.append(budget_left()) or [])
    spec = experiments.build("tuning", block("tuning", workloads=LOADS, epochs_of=None))
    list(tuning.run(spec, replace(machine, num_devices=2)))
    assert [round(seconds, -1) for seconds in found] == [20, 30, 50, 100]
