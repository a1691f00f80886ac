"""The plan of a start: how long it took last time, and which place a job has in it."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from scalecard.jobs import plan


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, in which the tests run, and the folder of its platform."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "box").mkdir(parents=True)
    return tmp_path / "results" / "box"


def logs(*rules: str) -> dict[str, str]:
    return {rule: f"{rule}.log" for rule in rules}


HEADLINE = 6.0  # seconds of hybrid's


def announce(folder: Path, *rules: str, scale: str = "quick", **shares: int) -> None:
    experiments = ["ddp", "pipeline", "hybrid"]
    needs = {"ddp": 70.0, "pipeline": 0.0, "hybrid": 8.0}
    least = {"ddp": 0.0, "pipeline": 0.0, "hybrid": HEADLINE}
    devices, planned = "2 CPU workers", logs(*rules)
    plan.announce(
        planned, experiments, scale=scale, folder=folder, needs=needs, shares=shares, headlines=least, devices=devices
    )


def test_only_experiments_that_will_run_are_planned(folder: Path) -> None:
    announce(folder, "report", "pipeline", "figure", "ddp")
    kept = plan.read()
    assert kept
    assert [*kept.expected] == ["ddp", "pipeline"]
    assert kept.logs == logs("report", "pipeline", "figure", "ddp")


def test_the_expected_duration_is_that_of_the_last_result(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = {"started": "2026-01-01T00:00:00.000+00:00", "finished": "2026-01-01T00:00:42.000+00:00"}
    (folder / "ddp.json").write_text(json.dumps(times))
    assert plan.last_seconds(folder / "ddp.json") == 42
    announce(folder, "ddp")
    assert "42 s" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{", "[]", '{"started": 1, "finished": 2}', '{"started": "now"}'])
def test_a_damaged_result_says_nothing_about_the_duration(folder: Path, text: str) -> None:
    (folder / "ddp.json").write_text(text)
    assert plan.last_seconds(folder / "ddp.json") is None
    assert plan.last_seconds(folder / "missing.json") is None


def test_a_job_finds_its_place_by_the_logs_of_the_others(folder: Path) -> None:
    old = Path("hybrid.log")
    old.write_text("of an earlier start")
    os.utime(old, (time.time() - 60,) * 2)
    announce(folder, "ddp", "pipeline", "hybrid", "report")
    assert plan.place("pipeline") == "1 of 3"
    Path("ddp.log").touch()
    Path("report.log").touch()
    assert plan.place("pipeline") == "2 of 3"
    assert plan.place("ddp") == "1 of 3", "its own log does not count"


def test_an_experiment_started_by_hand_has_no_place(folder: Path) -> None:
    assert plan.place("ddp") == ""
    announce(folder, "ddp")
    assert plan.place("allreduce") == ""


def test_a_first_run_expects_what_is_estimated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announce(folder, "ddp", "pipeline", "hybrid")
    said = capsys.readouterr().out
    assert "ddp              70 s estimated" in said
    assert "pipeline         nothing to measure here" in said
    assert "in total         about 78 s" in said


def test_a_share_of_the_budget_is_said_and_expected(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announce(folder, "ddp", "hybrid", ddp=60, hybrid=600)
    assert "at most 60 s" in capsys.readouterr().out
    kept = plan.read()
    assert kept
    assert kept.expected == {"ddp": 60, "hybrid": 8}, "of what is estimated, no more than the share"


def test_a_finished_run_leaves_no_plan(folder: Path) -> None:
    announce(folder, "ddp")
    assert plan.take()
    assert plan.read() is None
    assert plan.take() is None


def took(folder: Path, name: str, seconds: int) -> None:
    """A result of this run, and the log that it began with."""
    times = {"started": "2026-01-01T00:00:00.000+00:00", "finished": f"2026-01-01T00:00:{seconds:02}.000+00:00"}
    (folder / f"{name}.json").write_text(json.dumps(times))
    Path(f"{name}.log").touch()


def test_what_one_leaves_of_its_share_those_that_follow_may_take(folder: Path) -> None:
    announce(folder, "ddp", "pipeline", "hybrid", ddp=50, pipeline=60, hybrid=20)
    assert plan.seconds_allowed("ddp", 50, folder) == 50
    took(folder, "ddp", 10)
    assert plan.seconds_allowed("pipeline", 60, folder) == 60 + 40 * 60 // 80
    assert plan.seconds_allowed("hybrid", 20, folder) == 20 + 40 * 20 // 80
    took(folder, "pipeline", 50)
    assert plan.seconds_allowed("hybrid", 20, folder) == 20 + 40 + 10


def test_what_took_too_long_is_made_up_for_but_leaves_half_of_a_share(folder: Path) -> None:
    announce(folder, "ddp", "pipeline", "hybrid", ddp=5, pipeline=60, hybrid=20)
    took(folder, "ddp", 13)
    assert plan.seconds_allowed("pipeline", 60, folder) == 60 - 8 * 60 // 80
    took(folder, "pipeline", 59)
    took(folder, "ddp", 59)
    assert plan.seconds_allowed("hybrid", 20, folder) == 10
    announce(folder, "ddp", "pipeline", "hybrid", ddp=5, pipeline=60, hybrid=8)
    took(folder, "pipeline", 59)
    took(folder, "ddp", 59)
    assert plan.seconds_allowed("hybrid", 8, folder) == HEADLINE, "nobody gives up a headline"


def test_one_that_wrote_no_result_took_its_share(folder: Path) -> None:
    announce(folder, "ddp", "pipeline", ddp=50, pipeline=60)
    Path("ddp.log").touch()
    assert plan.seconds_allowed("pipeline", 60, folder) == 60


def test_nothing_is_handed_on_by_hand_without_a_budget_or_on_a_cluster(folder: Path) -> None:
    assert plan.seconds_allowed("ddp", 50, folder) == 50, "no plan"
    announce(folder, "ddp", "pipeline")
    took(folder, "ddp", 10)
    assert plan.seconds_allowed("pipeline", 0, folder) == 0
    shares = {"ddp": 50, "pipeline": 60}
    both = logs("ddp", "pipeline")
    names, needs = ["ddp", "pipeline"], {"ddp": 50.0, "pipeline": 60.0}
    of: dict[str, Any] = {"needs": needs, "shares": shares, "headlines": needs}
    plan.announce(both, names, scale="quick", folder=folder, **of, handed_on=False, devices="")
    took(folder, "ddp", 10)
    assert plan.seconds_allowed("pipeline", 60, folder) == 60
