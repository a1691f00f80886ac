"""The command line: exit statuses, one error for bad input, and what it prints for programs."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest
from scalecard.analysis import formatting
from scalecard.hardware.machine import Machine, probe
from scalecard.jobs.inputs import read_machine
from scalecard.records.record import Reason, Record
from support.blocks import CONFIG, SHORTEST, block
from support.builders import out_of_memory, repeated, timed
from support.fake_nvml import A100, FakeNvml, box
from support.projects import ROOT

Command = Callable[..., Any]
Save = Callable[..., Path]


def test_probe_describes_this_machine(scalecard: Command) -> None:
    done = scalecard("probe")
    assert done.status == 0
    assert json.loads(done.out) == {**asdict(probe()), "slug": probe().slug, "fingerprint": probe().fingerprint}


def test_probe_writes_a_machine_that_any_node_of_its_kind_is(
    scalecard: Command, install_gpus: Callable[..., FakeNvml], tmp_path: Path
) -> None:
    install_gpus(box(A100, 2))
    assert scalecard("probe", "--output", tmp_path / "machine.json").status == 0
    assert read_machine(tmp_path / "machine.json") == probe().any_node()


@pytest.fixture
def check(scalecard: Command, tmp_path: Path) -> Command:
    """`scalecard check`, with the blocks of each scale in a file."""

    def call(scales: dict[str, dict[str, str]]) -> Any:
        (tmp_path / "blocks.json").write_text(json.dumps(scales))
        return scalecard("check", tmp_path / "blocks.json")

    return call


def test_check_accepts_the_configuration(check: Command) -> None:
    scales = {scale: {name: block(name, scale) for name in CONFIG["experiments"]} for scale in ("full", "quick")}
    assert check(scales) == (0, "", "")


def test_check_names_every_problem_and_a_shared_one_once(check: Command) -> None:
    measure = {**CONFIG["measure"], "presision": 1}
    del measure["quick"]
    blocks = {
        "ddp": block("ddp", models=["vgg"], lr="fast", measure=measure),
        "hybrid": block("hybrid", measure=measure),
    }
    done = check({"full": blocks, "quick": blocks})
    assert done.status == 2
    assert sorted(line.split(":")[0] for line in done.err.splitlines()) == [
        'experiments.ddp.lr = "fast"',
        'experiments.ddp.models.0 = "vgg"',
        "measure.presision",
    ]


def test_check_says_that_a_problem_stands_in_quick(check: Command) -> None:
    full = {"pipeline": block("pipeline"), "ddp": block("ddp", lr=0), "hybrid": block("hybrid")}
    quick = {
        "pipeline": block("pipeline", "quick", split_sizes=[500], splits=1),
        "ddp": block("ddp", "quick", lr=0),
        "hybrid": block("hybrid", "quick", measure={**SHORTEST, "min_rounds": 9}),
    }
    done = check({"full": full, "quick": quick})
    assert [line.split(" = ")[0] for line in done.err.splitlines()] == [
        "experiments.ddp.lr",
        "experiments.pipeline.quick.splits: unknown key; did you mean 'split_sizes'?",
        "measure.quick: measure.max_rounds",
    ]
    done = check({"full": full, "quick": {**quick, "pipeline": block("pipeline", "quick", split_sizes=[500])}})
    assert "experiments.pipeline.quick: split_sizes = 500: " in done.err


@pytest.mark.parametrize(
    ("changes", "told"), [({"cores": 96}, r"cores 96, now"), ({"software": "abc"}, r"software abc, now")]
)
def test_run_refuses_another_machine_with_the_facts(
    scalecard: Command, machine: Machine, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    path, output = tmp_path / "machine.json", tmp_path / "ddp.json"
    path.write_text(json.dumps(asdict(replace(machine, **changes))))
    done = scalecard("run", "ddp", "--spec", block("ddp"), "--machine", path, "--output", output)
    assert (done.status, output.exists()) == (2, False)
    assert done.err.startswith(f"{path}: ")
    assert told in done.err


def test_run_refuses_a_machine_that_has_lost_a_gpu(
    scalecard: Command, install_gpus: Callable[..., FakeNvml], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_gpus(box(A100, 4))
    path = tmp_path / "machine.json"
    assert scalecard("probe", "--output", path).status == 0
    install_gpus(box(A100, 3))
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    block_ = block("async_timing", "quick")
    done = scalecard("run", "async_timing", "--spec", block_, "--machine", path, "--output", tmp_path / "a.json")
    assert done.status == 2
    assert "lists only 3" in done.err
    assert "describes" not in done.err, "the cause is told, and not that it is another machine"


STARTS = """
import sys
from pathlib import Path
from scalecard.hardware import fresh_process, isolation

if __name__ == "__main__":
    isolation.LOCK, starts, pool = Path(sys.argv.pop(1)), [], fresh_process._pool

    def seen(start):
        starts.append(start)
        return pool(start)

    fresh_process._pool = seen
    from scalecard.cli.commands import main

    status = main()
    print(status, starts, "torch" in sys.modules)
"""


def test_one_process_measures_and_its_parent_imports_no_pytorch(machine: Machine, tmp_path: Path) -> None:
    path, program, output = tmp_path / "machine.json", tmp_path / "program.py", tmp_path / "box" / "async_timing.json"
    path.write_text(json.dumps(asdict(machine)))
    program.write_text(STARTS)
    values = block("async_timing", "quick", size=16, products=1, sizes=[16], dtypes=["float32"], measure=SHORTEST)
    command = [str(tmp_path / "lock"), "run", "async_timing", "--spec", values, "--machine", str(path)]
    done = subprocess.run(
        [sys.executable, str(program), *command, "--output", str(output)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] == "0 ['spawn'] False", done.stdout + done.stderr
    assert output.exists()


def test_ctrl_c_ends_a_run_in_one_line(machine: Machine, tmp_path: Path) -> None:
    """It reaches the process that is to measure as well, while that imports PyTorch or waits."""
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(asdict(machine)))
    command = ["run", "allreduce", "--spec", block("allreduce", "quick"), "--machine", str(path)]
    running = subprocess.Popen(
        [sys.executable, "-m", "scalecard", *command, "--output", str(tmp_path / "box" / "allreduce.json")],
        env=os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src")},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # in the background it would be ignored
    )
    process = psutil.Process(running.pid)
    while not any("libtorch" in Path(f"/proc/{child.pid}/maps").read_text() for child in process.children()):
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said.splitlines()[-1] == "run: interrupted"
    assert "Traceback" not in said


def test_run_refuses_a_bad_block_before_it_measures(scalecard: Command, machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(asdict(machine)))
    bad = block("allreduce", bytes=[6])
    done = scalecard("run", "allreduce", "--spec", bad, "--machine", path, "--output", tmp_path / "a.json")
    assert done.status == 2
    assert "bytes = 6" in done.err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("old", "new"), 0),
        (("old", "new", "--fail-on", "slower"), 1),
        (("new", "old", "--fail-on", "slower"), 0),
        (("old", "new", "--fail-on", "slower", "--margin", "0.2"), 0),
    ],
)
def test_compare_gates_a_cron_job(
    scalecard: Command, two_platforms: Path, arguments: tuple[str, ...], status: int
) -> None:
    assert scalecard("compare", *arguments).status == status


def test_a_gate_does_not_fail_for_what_chance_finds_among_many(
    scalecard: Command, save_result: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same difference of one noisy case fails a gate alone, and not among a hundred that did not change."""
    monkeypatch.chdir(tmp_path)
    for name, middles in (("old", (1.0, 1.01, 1.02)), ("new", (1.075, 1.085, 1.095))):
        one = timed(*[[middle + 1e-4 * i for i in range(7)] for middle in middles], rounds_id=name, number=-1)
        seeds = random.Random(name)
        unchanged = [repeated(seeds.gauss(1, 1e-9), spread=0.02, number=i) for i in range(100)]
        save_result(f"{name}-alone", one)
        save_result(f"{name}-among-many", one, *unchanged)
    status = [
        scalecard("compare", f"old-{x}", f"new-{x}", "--fail-on", "slower").status for x in ("alone", "among-many")
    ]
    assert status == [1, 0]


def test_compare_prints_json_and_writes_a_page(scalecard: Command, two_platforms: Path) -> None:
    done = scalecard("compare", "old", "new", "--json", "--html", "c.html")
    told = json.loads(done.out)
    assert [row["verdict"] for row in told["rows"]] == ["slower"]
    assert (
        formatting.change(told["rows"][0]["ratio"]).replace(" %", "\u00a0%") in (two_platforms / "c.html").read_text()
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("old", "nowhere"), ["'nowhere'", "new, old"]),
        (("old", "new", "--margin", "2"), ["--margin 2"]),
        (("old", "results"), ["results/new, results/old"]),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    scalecard: Command, two_platforms: Path, arguments: tuple[str, ...], named: list[str]
) -> None:
    done = scalecard("compare", *arguments, "--fail-on", "slower")
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
    for part in named:
        assert part in done.err


def test_a_result_that_cannot_be_used_is_one_line(scalecard: Command, two_platforms: Path) -> None:
    path = two_platforms / "results" / "new" / "async_timing.json"
    path.write_text(path.read_text()[:1000])
    done = scalecard("plot", "async_timing", "--results", path, "--output", "a.svg")
    assert done.status == 2
    assert done.err.startswith(f"{path}: ")
    assert len(done.err.splitlines()) == 1


def test_the_exit_status_is_that_of_the_process(two_platforms: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src")}
    command = [sys.executable, "-m", "scalecard", "compare", "old", "new", "--fail-on", "slower"]
    assert subprocess.run(command, capture_output=True, env=environment).returncode == 1


def test_a_run_ends_with_a_line_that_lists_what_was_lost(
    scalecard: Command, save_result: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scalecard.jobs.plan.success", lambda *args: "Done.")
    path = save_result("box", repeated(1.0), Record.failed({"devices": 2}, "rank 1 was killed", reason=Reason.LOST))
    done = scalecard("summary", "--results", path)
    *_, last = done.out.strip().splitlines()
    assert last.startswith("Failed: 1 case: async_timing devices 2, time (rank 1 was killed).")
    assert last.endswith("The next run measures async_timing once more.")
    assert done.status == 1


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (out_of_memory({"devices": 2}), 0),
        (Record.skipped({"devices": 2}, "needs 2 devices, this machine has 1"), 0),
        (Record.failed({}, "the experiment ended early: TypeError: no", reason=Reason.ERROR), 1),
        (Record.failed({"devices": 2}, "differs by 1", reason=Reason.NOT_PROVEN), 1),
    ],
)
def test_the_exit_status_of_a_run_says_whether_something_failed_that_should_not(
    scalecard: Command, save_result: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Record, status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    assert scalecard("summary", "--results", save_result("box", repeated(1.0), record)).status == status


def test_what_the_report_leaves_out_fails_the_run_that_wrote_it(
    scalecard: Command, save_result: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, page, left_out = save_result("box", repeated(1.0)), tmp_path / "report.html", tmp_path / "left_out.json"
    left_out.write_text('["left out: figure of ddp: it could not be drawn"]')
    options = ("--results", path, "--report", page, "--left-out", left_out)
    assert scalecard("summary", *options).status == 0, "no report was written"
    page.touch()
    done = scalecard("summary", *options)
    assert done.status == 1
    assert "Failed: left out: figure of ddp: it could not be drawn" in done.out


def test_compare_of_chosen_experiments_writes_junit(scalecard: Command, two_platforms: Path) -> None:
    done = scalecard("compare", "old", "new", "--only", "async_timing", "--junit", "c.xml", "--fail-on", "slower")
    assert done.status == 1
    (suite,) = ElementTree.parse(two_platforms / "c.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    done = scalecard("compare", "old", "new", "--only", "dpd")
    assert (done.status, done.out) == (2, "")
    assert done.err == "--only dpd: not in both A and B (in both: async_timing)\n"
