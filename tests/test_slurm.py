"""The smoke workflow submitted to a real Slurm through profiles/slurm: two nodes here, whose GPUs are device files."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil
import pytest
from conftest import SITE, copy_project, set_up_site, snakemake, snakemake_in_background, with_profile
from scalecard import schema, specs

HERE = Path(__file__).parent / "slurm"
CHANGES = {  # two nodes, and shorter pauses for a test
    "nodes: 1 ": "nodes: 2 ",
    '"gpu:8"': '"gpu:h100:2"',
    "mem_mb: 64000": "mem_mb: 3500",
    "jobs: 20": "slurm-init-seconds-before-status-checks: 2\nseconds-between-status-checks: 2\njobs: 20",
}

pytestmark = [
    pytest.mark.skipif(
        not (shutil.which("slurmctld") and shutil.which("munged") and os.getuid() == 0),
        reason="needs Slurm, munge and root: tests/slurm/install.sh installs them on Debian 12",
    ),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("slurm")
    subprocess.run([HERE / "start.sh", folder], check=True)
    yield folder
    subprocess.run([HERE / "stop.sh", folder], check=True)


@pytest.fixture(scope="module")
def submitted(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after the smoke workflow was submitted with a site's profile."""
    folder = copy_project(tmp_path_factory.mktemp("submitted"))
    set_up_site(folder, "slurm", CHANGES)
    done = submit(folder)
    assert done.returncode == 0, done.stdout[-6000:]
    return folder


def submit(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return snakemake(folder, *with_profile("slurm", *args), **environment)


def submit_in_background(folder: Path, *args: str, **environment: str) -> "subprocess.Popen[bytes]":
    """With its output in run.log."""
    return snakemake_in_background(folder, folder / "run.log", *with_profile("slurm", *args), **environment)


def result_of(folder: Path, name: str) -> Path:
    return folder / "results" / SITE / f"{name}.json"


def submissions(output: str) -> list[str]:
    """The rules of which jobs were submitted."""
    return re.findall(r"slurm_logs/rule_(\w+)/", output)


def test_every_experiment_was_measured_by_a_job_and_reported_here(submitted: Path) -> None:
    environments = []
    for name in specs.experiment_names():
        result = schema.load(result_of(submitted, name))
        assert [r for r in result.records if r.status == "ok"], name
        assert result.platform == SITE
        environments.append(result.environment)
    assert {e["machine"]["cores"] for e in environments} == {len(os.sched_getaffinity(0))}, "whole nodes"
    assert SITE in (submitted / "results" / "report.html").read_text()
    again = submit(submitted)
    assert "Nothing to be done" in again.stdout, again.stdout[-3000:]


def test_jobs_on_one_node_never_overlap_and_those_on_two_do(cluster: Path, submitted: Path) -> None:
    spans = defaultdict(list)
    for line in (cluster / "log" / "jobcomp.txt").read_text().splitlines():
        facts = dict(word.split("=", 1) for word in line.split() if "=" in word)
        start, end = (datetime.fromisoformat(facts[key]) for key in ("StartTime", "EndTime"))
        for node in ("n1", "n2") if facts["NodeList"] == "n[1-2]" else (facts["NodeList"],):
            spans[node].append((start, end))
    assert set(spans) == {"n1", "n2"}
    for node in spans.values():
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(sorted(node)))
    both = [(a, b) for a in spans["n1"] for b in spans["n2"] if a != b and a[0] < b[1] and b[0] < a[1]]
    assert both, "two nodes measure at the same time"


def test_the_results_of_one_node_do_not_overlap_either(submitted: Path) -> None:
    """More than two at a time never: there are two nodes. One over both nodes has them for itself."""
    results = [schema.load(result_of(submitted, name)) for name in specs.experiment_names()]
    spans = [(r.started, r.finished, 2 if r.spec.get("nodes", 1) > 1 else 1) for r in results]
    for moment, _, _ in spans:
        assert sum(nodes for start, end, nodes in spans if start <= moment < end) <= 2


@pytest.mark.parametrize("name", ["allreduce", "ddp", "hybrid"])
def test_one_job_spans_two_nodes(submitted: Path, name: str) -> None:
    records = [r for r in schema.load(result_of(submitted, name)).records if r.case.get("nodes") == 2]
    timed = [r for r in records if r.unit == "s"]
    assert timed
    assert {r.status for r in records} == {"ok"}
    assert any(r.checks for r in timed), "proven between nodes, too"
    assert "over 2 nodes" in (submitted / "results" / "report.html").read_text()


def test_nodes_that_are_asked_again_and_the_same_are_not_measured_again(submitted: Path) -> None:
    asked = submit(submitted, f"results/{SITE}/machine.json", "--forcerun", "machine")
    assert asked.returncode == 0, asked.stdout[-3000:]
    assert submissions(asked.stdout) == ["machine"]
    assert "Nothing to be done" in submit(submitted).stdout


def test_another_kind_of_node_under_the_label_is_refused_with_its_facts(submitted: Path) -> None:
    machine = submitted / "results" / SITE / "machine.json"
    ours = machine.read_text()
    machine.write_text(json.dumps(json.loads(ours) | {"cpu": "another CPU"}, indent=1) + "\n")
    before = result_of(submitted, "copy_cost").read_bytes()
    refused = submit(submitted, f"results/{SITE}/copy_cost.json", "--forcerun", "copy_cost")
    assert refused.returncode != 0
    assert "describes another CPU" in refused.stdout
    assert re.search(r"this machine \(host, hashed: [0-9a-f]{8}\) is ", refused.stdout)
    asked = submit(submitted, f"results/{SITE}/machine.json", "--forcerun", "machine")
    assert asked.returncode != 0
    assert (
        f"the results under the label '{SITE}' were measured on another machine (cpu another CPU, now" in asked.stdout
    )
    machine.write_text(ours)
    result_of(submitted, "copy_cost").write_bytes(before)


def of_the_second_node() -> list[psutil.Process]:
    """Our Python processes there, the launcher's and srun's not among them."""
    found = []
    for process in psutil.process_iter():
        try:
            if "python" in process.name() and process.environ().get("SCALECARD_NODE") == "1":
                found.append(process)
        except psutil.Error:
            continue
    return found


def is_spawned(process: psutil.Process | None) -> bool:
    return process is not None and any("spawn_main" in part for part in process.cmdline())


def wait_for_a_rank() -> psutil.Process:
    """On the second node: spawned by the process that measures, which is spawned itself."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for process in of_the_second_node():
            try:
                if is_spawned(process) and is_spawned(process.parent()):
                    return process
            except psutil.Error:
                continue
        time.sleep(0.1)
    raise TimeoutError("no rank on the second node")


def test_a_rank_killed_on_the_second_node_is_a_failed_record_that_names_it(submitted: Path) -> None:
    running = submit_in_background(submitted, f"results/{SITE}/allreduce.json", "--forcerun", "allreduce")
    wait_for_a_rank().kill()
    assert running.wait(300) == 0, (submitted / "run.log").read_text()[-4000:]
    failed = [r for r in schema.load(result_of(submitted, "allreduce")).records if r.status == "failed"]
    assert len(failed) == 1
    assert failed[0].case == {"algorithm": "torch.distributed", "devices": 2, "nodes": 2}
    assert re.search(r"of 2 ranks on 2 nodes, rank [01] was killed by signal 9", failed[0].note)


def test_a_node_that_dies_ends_the_job_within_the_timeout(submitted: Path) -> None:
    running = submit_in_background(
        submitted, f"results/{SITE}/allreduce.json", "--forcerun", "allreduce", SCALECARD_TIMEOUT="15"
    )
    wait_for_a_rank()
    for process in of_the_second_node():
        process.kill()
    started = time.monotonic()
    assert running.wait(300) == 0, (submitted / "run.log").read_text()[-4000:]
    assert time.monotonic() - started < 150
    failed = [r for r in schema.load(result_of(submitted, "allreduce")).records if r.status == "failed"]
    notes = [r.note for r in failed]
    assert len(notes) == 2
    assert "of 2 ranks on 2 nodes, rank" in notes[0]
    assert "was lost with node 1" in notes[0] or "node 1 never came" in notes[0]
    assert "node 1 never came (waited 32.5 s)" in notes[1]


def test_a_job_over_its_time_limit_fails_and_the_next_run_measures_it(submitted: Path) -> None:
    target = result_of(submitted, "async_timing")
    target.unlink()
    slow = {"measure": {"quick": {"min_rounds": 500, "max_rounds": 500, "max_seconds": 500, "warmup_seconds": 90}}}
    (submitted / "slow.yaml").write_text(json.dumps(slow))
    name = str(target.relative_to(submitted))
    late = submit(submitted, name, "--set-resources", "async_timing:runtime=1", "slow.yaml")
    assert late.returncode != 0
    assert "DUE TO TIME LIMIT" in late.stdout, late.stdout[-4000:]
    assert not target.exists()
    assert submit(submitted, name).returncode == 0
    assert schema.load(target).records


def test_what_the_jobs_of_a_killed_workflow_finish_is_not_done_again(submitted: Path) -> None:
    names = ("async_timing", "copy_cost", "model_parallel")
    for name in names:
        result_of(submitted, name).unlink()
    running = submit_in_background(submitted)
    deadline = time.monotonic() + 120
    while len(submissions((submitted / "run.log").read_text())) < len(names) and time.monotonic() < deadline:
        time.sleep(0.2)
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    unlocked, done = submit(submitted, "--unlock"), submit(submitted)
    assert (unlocked.returncode, done.returncode) == (0, 0), done.stdout[-4000:]
    assert "waiting for Slurm's jobs" in done.stdout
    assert submissions(done.stdout) == []
    assert all(schema.load(result_of(submitted, name)).records for name in names)
