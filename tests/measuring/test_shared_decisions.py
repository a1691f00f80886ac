"""What the first process of a run decides, the later ones keep."""

import os
from pathlib import Path

import pytest
from scalecard.measuring import shared_decisions


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared_decisions.FOLDER, "")
    monkeypatch.setenv(shared_decisions.PROCESS, "1")


def test_only_the_first_process_that_asks_is_the_first(tmp_path: Path) -> None:
    """However often it asks, for every name anew, and also where a run goes on that had been ended."""
    shared_decisions.begin(tmp_path)
    answers = []
    for number, name in [(1, "cut"), (1, "cut"), (2, "cut"), (2, "batch"), (1, "batch")]:
        shared_decisions.begin_process(number)
        answers.append(shared_decisions.first(name))
    assert answers == [True, True, False, True, False]


def test_without_a_run_every_process_is_the_first() -> None:
    for number in (1, 2):
        shared_decisions.begin_process(number)
        assert shared_decisions.first("cut")


def test_a_decision_is_kept_in_the_types_of_json(tmp_path: Path) -> None:
    assert shared_decisions.decided("cut", lambda: (1, 2)) == [1, 2]
    shared_decisions.begin(tmp_path)
    assert shared_decisions.decided("cut", lambda: (1, 2)) == [1, 2]
    assert shared_decisions.decided("cut", lambda: (3, 4)) == [1, 2]
    shared_decisions.begin(tmp_path / "another run")
    (tmp_path / "another run").mkdir()
    assert shared_decisions.decided("cut", lambda: (3, 4)) == [3, 4]


def test_of_two_processes_that_decide_at_the_same_time_the_faster_one_has_decided(tmp_path: Path) -> None:
    shared_decisions.begin(tmp_path)

    def overtaken() -> str:
        shared_decisions.decided("cut", lambda: "of the other process")
        return "mine"

    assert shared_decisions.decided("cut", overtaken) == "of the other process"
    assert shared_decisions.decided("cut", lambda: "later") == "of the other process"


def test_what_holds_in_one_run_is_decided_anew_in_the_next_one(tmp_path: Path) -> None:
    names = ("cut", f"{shared_decisions.THIS_RUN}slow")
    for number in (1, 2):
        shared_decisions.begin(tmp_path)
        assert [shared_decisions.decided(name, lambda: number) for name in names] == [1, number]


def test_another_process_decides_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_decisions.begin(tmp_path)
    assert shared_decisions.decided("cut", lambda: 1) == 1
    monkeypatch.setattr(os, "getpid", lambda: 0)
    assert shared_decisions.decided("cut", lambda: 2) == 1
