"""The comparison of two platforms, folders or revisions, through the command line that a cron job would use."""

import dataclasses
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from scalecard import compare, merge, schema
from scalecard.schema import Case, Record, Result

Make = Callable[..., Result]
SPEC = {"size": 4000, "sizes": [16, 4000], "measure": {"max_seconds": 1}, "data_dir": "data"}


def timed(seconds: float, *, processes: int = 3, spread: float = 0.002, metric: str = "time", **case: Any) -> Record:
    """Several processes of 30 samples, all within a few thousandths."""
    draw = random.Random(str([seconds, processes, spread, case]))
    own: Case = case or {"mode": "single"}
    runs = []
    for _ in range(processes):
        middle = seconds * draw.gauss(1, spread)
        samples = [middle * draw.gauss(1, 0.002) for _ in range(30)]
        runs.append([Record(case=own, metric=metric, unit="s", samples=samples, telemetry=[{}])])
    return merge.merged(runs)[0]


@pytest.fixture
def save(tmp_path: Path, make_result: Make) -> Callable[..., Path]:
    def put(platform: str, *records: Record, spec: dict[str, Any] = SPEC, **machine: Any) -> Path:
        result = make_result(list(records), platform=platform, spec=spec)
        environment = {**result.environment, "machine": {**result.environment["machine"], **machine}}
        if machine:
            environment["fingerprint"] = platform
        schema.save(
            dataclasses.replace(result, environment=environment), tmp_path / "results" / platform / "async_timing.json"
        )
        return tmp_path

    return put


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT / "workflow" / "src"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "scalecard", "compare", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_each_verdict_and_what_changed(save: Callable[..., Path]) -> None:
    cases = {"same": 1.0, "slower": 1.10, "faster": 0.90}
    save("old", *(timed(1.0, mode=name) for name in cases), driver="570.1")
    folder = save("new", *(timed(factor, mode=name) for name, factor in cases.items()), driver="580.2")
    done = run(folder, "old", "new", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {row["case"]["mode"]: row["verdict"] for row in told["rows"]} == {name: name for name in cases}
    assert told["changes"] == ["driver 570.1 -> 580.2"]
    low, high = told["rows"][0]["interval"]
    assert low < 1.10 < high


def test_the_gate_of_a_cron_job(save: Callable[..., Path]) -> None:
    save("old", timed(1.0))
    folder = save("new", timed(1.10))
    assert run(folder, "old", "new", "--fail-on", "slower").returncode == 1
    assert run(folder, "new", "old", "--fail-on", "slower").returncode == 0
    assert run(folder, "old", "new", "--margin", "0.2", "--fail-on", "slower").returncode == 0
    table = run(folder, "old", "new").stdout
    assert "slower" in table
    assert "1.1" in table


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("old", "nowhere"), "'nowhere': no folder, no platform under results/ (there are: new, old)"),
        (("old", "new", "--margin", "2"), "--margin 2"),
        (("old", "results"), "several platforms, choose one: results/new, results/old"),
    ],
)
def test_bad_input_is_one_line_and_status_2(save: Callable[..., Path], args: tuple[str, ...], says: str) -> None:
    save("old", timed(1.0))
    done = run(save("new", timed(1.0)), *args, "--fail-on", "slower")
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_another_workload_is_not_compared_and_named(save: Callable[..., Path]) -> None:
    save("old", timed(1.0))
    changed = {**SPEC, "size": 2000, "sizes": [16], "measure": {"max_seconds": 9}}
    (row,) = json.loads(run(save("new", timed(2.0), spec=changed), "old", "new", "--json").stdout)["rows"]
    assert (row["verdict"], row["ratio"]) == ("not compared", None)
    assert row["reason"] == "another workload: size 4000 -> 2000"


def test_the_spread_between_processes_counts(make_result: Make) -> None:
    old, new = (make_result([timed(seconds, spread=0.04)]) for seconds in (1.0, 1.04))
    (row,) = compare.compare([old], [new]).rows
    assert row.new.between
    assert row.new.within
    assert row.new.between.half_width > 3 * row.new.within.half_width
    assert row.verdict == "unclear"


def test_one_process_alone_tells_only_large_differences(make_result: Make) -> None:
    old = make_result([timed(1.0, processes=1)])
    verdicts = {
        factor: compare.compare([old], [make_result([timed(factor, processes=1)])]).rows[0].verdict
        for factor in (1.05, 1.3)
    }
    assert verdicts == {1.05: "unclear", 1.3: "slower"}


def test_revisions_of_committed_results(save: Callable[..., Path]) -> None:
    folder = save("box", timed(1.0))

    def git(*args: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)

    git("init", "-q")
    git("add", "results")
    git("commit", "-qm", "before")
    save("box", timed(1.2))
    save("other", timed(1.0))
    git("add", "results")
    git("commit", "-qm", "after")
    assert run(folder, "HEAD~1", "HEAD:box", "--fail-on", "slower").returncode == 1
    refused = run(folder, "HEAD~1", "HEAD")
    assert refused.returncode == 2
    assert "several platforms, choose one: HEAD:box, HEAD:other" in refused.stderr


def test_a_page_of_its_own(save: Callable[..., Path]) -> None:
    save("old", timed(1.0))
    folder = save("new", timed(1.1), driver="580.2")
    assert run(folder, "old", "new", "--html", "c.html").returncode == 0
    page = (folder / "c.html").read_text()
    assert "1 slower" in page
    assert "driver not known -&gt; 580.2" in page


def test_two_machines_in_one_folder_are_refused_with_files_and_facts(save: Callable[..., Path]) -> None:
    save("old", timed(1.0))
    folder = save("new", timed(1.0), driver="570.1")
    text = (folder / "results" / "old" / "async_timing.json").read_text()
    other = text.replace('"platform": "old"', '"platform": "new"').replace("async_timing", "copy_cost")
    (folder / "results" / "new" / "copy_cost.json").write_text(other)
    done = run(folder, "old", "new")
    assert done.returncode == 2
    assert "async_timing.json and copy_cost.json" in done.stderr
    assert "driver 570.1 and None" in done.stderr


def test_drift_and_neighbours_that_resemble_one_another_are_said() -> None:
    rising = Record(case={}, metric="time", unit="s", samples=[1 + 0.01 * i for i in range(30)])
    assert rising.doubts[0] == "14 % slower in the second half than in the first"
    assert rising.doubts[1].startswith("neighbouring samples resemble one another (autocorrelation 1.00)")
    assert timed(1.0).doubts == []
