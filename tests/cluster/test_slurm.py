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
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psutil
import pytest
from scalecard import experiments
from scalecard.analysis.health.alerts import verdicts
from scalecard.analysis.health.verdict import Place
from scalecard.hardware.machine import probe
from scalecard.jobs.startup import marked_jobs
from support.projects import (
    ROOT,
    SITE,
    completed,
    copy_project,
    is_rank,
    leave_out,
    made_at,
    made_since,
    planned,
    results_of,
    set_up_site,
    snakemake,
    snakemake_in_background,
    with_profile,
)

SCRIPTS = ROOT / "tests" / "cluster" / "slurm"
CHANGES = {  # two nodes, and shorter pauses for a test
    "nodes: 1 ": "nodes: 2 ",
    '"gpu:8"': '"gpu:h100:2"',
    "mem_mb: 64000": "mem_mb: 3500",
    "jobs: 20": "slurm-init-seconds-before-status-checks: 2\nseconds-between-status-checks: 2\njobs: 20",
}

# Jobs that a cluster runs like those of other experiments.
LIKE_OTHERS = ("pipeline", "input", "tuning", "dp_concise", "heterogeneous")

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not (shutil.which("slurmctld") and shutil.which("munged") and os.getuid() == 0),
        reason="needs Slurm, munge and root: tests/cluster/slurm/install.sh installs them on Debian 12",
    ),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("slurm")
    subprocess.run([SCRIPTS / "start.sh", folder], check=True)
    yield folder
    subprocess.run([SCRIPTS / "stop.sh", folder], check=True)


@pytest.fixture(scope="module")
def submitted(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after the smoke workflow was submitted with a site's profile. Tests only read it."""
    folder = copy_project(tmp_path_factory.mktemp("submitted"))
    leave_out(folder, LIKE_OTHERS)
    set_up_site(folder, "slurm", CHANGES)
    completed(folder, *with_profile("slurm"))
    return folder


@pytest.fixture
def own_copy(submitted: Path, tmp_path: Path) -> Path:
    """A copy for a test that changes something."""
    return Path(shutil.copytree(submitted, tmp_path / "project", symlinks=True))


def submit_in_background(folder: Path, *args: str, **environment: str) -> "subprocess.Popen[bytes]":
    """With its output in run.log."""
    return snakemake_in_background(folder, folder / "run.log", *with_profile("slurm", *args), **environment)


def measure_again(name: str) -> tuple[str, ...]:
    """Arguments that measure one experiment, or ask what the nodes are, and do nothing else."""
    return f"results/{SITE}/{name}.json", "--forcerun", name


def log_of(folder: Path, name: str) -> Path:
    return folder / "results" / "logs" / SITE / f"{name}.log"


def ended_jobs(cluster: Path) -> list[dict[str, str]]:
    """Slurm's facts about each job that has ended, the first one first."""
    path = cluster / "log" / "jobcomp.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]


def test_every_experiment_was_measured_by_a_job_and_reported_here(submitted: Path) -> None:
    results = results_of(submitted, SITE)
    assert sorted(results) == sorted(set(experiments.names()) - set(LIKE_OTHERS))
    for name, result in results.items():
        assert result.count("ok"), name
        assert result.platform == SITE
    machines = [result.environment["machine"] for result in results.values()]
    assert {machine["cores"] for machine in machines} == {len(os.sched_getaffinity(0))}, "whole nodes"
    assert SITE in (submitted / "results" / "report.html").read_text()
    assert planned(submitted, *with_profile("slurm")) == set()


def spans(jobs: list[dict[str, str]]) -> dict[str, list[tuple[datetime, datetime]]]:
    """When each node's jobs ran, the first one first."""
    found = defaultdict(list)
    for facts in jobs:
        start, end = (datetime.fromisoformat(facts[key]) for key in ("StartTime", "EndTime"))
        for node in ("n1", "n2") if facts["NodeList"] == "n[1-2]" else (facts["NodeList"],):
            found[node].append((start, end))
    return {node: sorted(both) for node, both in found.items()}


def test_jobs_on_one_node_never_overlap(cluster: Path, submitted: Path) -> None:
    of_nodes = spans(ended_jobs(cluster))
    assert set(of_nodes) == {"n1", "n2"}
    for node in of_nodes.values():
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(node))


def test_the_results_of_one_node_do_not_overlap_either(submitted: Path) -> None:
    """More than two at a time never: there are two nodes. One over both nodes has them for itself."""
    results = results_of(submitted, SITE).values()
    spans = [(r.started, r.finished, 2 if r.spec.get("nodes", 1) > 1 else 1) for r in results]
    for moment, _, _ in spans:
        assert sum(nodes for start, end, nodes in spans if start <= moment < end) <= 2


@pytest.mark.parametrize("name", ["allreduce", "ddp", "hybrid", "health"])
def test_one_job_spans_two_nodes(submitted: Path, name: str) -> None:
    records = [r for r in results_of(submitted, SITE)[name].records if r.case.get("nodes") == 2]
    timed = [r for r in records if r.unit == "s"]
    assert timed
    assert {r.status for r in records} == {"ok"}
    assert any(r.checks for r in timed), "proven between nodes, too"


def test_the_health_of_both_nodes_is_measured_by_each_and_between_them(submitted: Path) -> None:
    result = results_of(submitted, SITE)["health"]
    for part in ("compute", "memory", "device link", "load", "storage", "host memory"):
        assert {r.case["node"] for r in result.select("time", part=part)} == {0, 1}, part
    assert {r.case["node"] for r in result.select("time", part="node")} == {0, 1}
    assert [(r.case["node"], r.case["other"]) for r in result.select("time", part="node pair")] == [(0, 1)]
    named = {place for verdict in verdicts(result) for place in verdict.place}
    workers = {Place(node, device=0, worker=True) for node in (0, 1)}
    assert workers | {Place(0), Place(1)} <= named


def test_nodes_that_are_asked_again_and_the_same_are_not_measured_again(own_copy: Path) -> None:
    before = made_at(own_copy)
    completed(own_copy, *with_profile("slurm", *measure_again("machine")))
    assert made_since(own_copy, before) == {f"{SITE}/machine.json"}
    assert planned(own_copy, *with_profile("slurm")) == set()


def test_another_kind_of_node_under_the_label_is_refused_with_its_facts(own_copy: Path) -> None:
    path = own_copy / "results" / SITE / "machine.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"cpu": "another CPU"}, indent=1) + "\n")
    before = made_at(own_copy)
    for name in ("copy_cost", "machine"):
        assert snakemake(own_copy, *with_profile("slurm", *measure_again(name))).returncode != 0
        for fact in ("another CPU", probe().cpu):
            assert fact in log_of(own_copy, name).read_text(), name
    assert made_since(own_copy, before) == set()


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


def allreduce_that_has_connected(folder: Path, **environment: str) -> tuple["subprocess.Popen[bytes]", psutil.Process]:
    """All-reduce over both nodes, submitted, and a rank of the second node once all ranks can reach each other.

    Before that gloo waits five times its timeout.
    """
    log = log_of(folder, "allreduce")
    log.unlink()
    long = {"measure": {"quick": {"min_rounds": 1000, "max_rounds": 1000, "max_seconds": 100}}}  # or it ends before
    (folder / "long.yaml").write_text(json.dumps(long))
    running = submit_in_background(folder, *measure_again("allreduce"), "long.yaml", **environment)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if log.exists() and re.search(r"ranks on 2 nodes, \d+ bytes", log.read_text()):
            for process in of_the_second_node():
                with suppress(psutil.Error):
                    if is_rank(process):
                        return running, process
        time.sleep(0.1)
    raise TimeoutError("no rank on the second node")


def test_a_rank_killed_on_the_second_node_is_a_failed_record_that_names_it(own_copy: Path) -> None:
    running, rank = allreduce_that_has_connected(own_copy)
    rank.kill()
    assert running.wait(300) == 1, (own_copy / "run.log").read_text()[-4000:]
    assert "Done in" in (own_copy / "run.log").read_text(), "the report is written all the same"
    failed = [r for r in results_of(own_copy, SITE)["allreduce"].records if r.status == "failed"]
    lost = {"algorithm": "torch.distributed", "devices": 4, "nodes": 2, "backend": "gloo"}  # all ranks come first
    cases = [{**lost, "bytes": size} for size in (65536, 4096)]  # the largest comes first
    assert [record.case for record in failed] in (cases, cases[1:]), "what was measured before is kept"
    assert re.search(r"of 4 ranks on 2 nodes, rank [0-3] was killed by signal 9", failed[0].note)


def test_a_node_that_dies_ends_the_job_within_the_timeout(own_copy: Path) -> None:
    running, _ = allreduce_that_has_connected(own_copy, SCALECARD_TIMEOUT="15")
    for process in of_the_second_node():
        process.kill()
    killed = time.monotonic()
    while not re.search(r"from scratch, \d devices", log_of(own_copy, "allreduce").read_text()):
        assert time.monotonic() - killed < 120, "what follows the ranks has begun by then, though both launches failed"
        time.sleep(0.2)
    assert running.wait(300) == 1, (own_copy / "run.log").read_text()[-4000:]
    notes = [r.note for r in results_of(own_copy, SITE)["allreduce"].records if r.status == "failed"]
    assert len(notes) in (3, 4), "of two sizes of two layouts; the first was perhaps done"
    lost = "of 4 ranks on 2 nodes, ranks (0, 1|2, 3) were lost with node 1"  # on one host, either node may have rank 0
    assert re.search(lost, notes[0]), "all ranks come first"
    assert "node 1 never arrived (waited 32.5 s)" in notes[-2]


def test_a_job_over_its_time_limit_fails_and_the_next_run_measures_it(cluster: Path, own_copy: Path) -> None:
    target = own_copy / "results" / SITE / "async_timing.json"
    target.unlink()
    slow = {"measure": {"quick": {"min_rounds": 500, "max_rounds": 500, "max_seconds": 500, "warmup_seconds": 90}}}
    (own_copy / "slow.yaml").write_text(json.dumps(slow))
    before, name = len(ended_jobs(cluster)), str(target.relative_to(own_copy))
    limited = with_profile("slurm", name, "--set-resources", "async_timing:runtime=1", "slow.yaml")
    assert snakemake(own_copy, *limited).returncode != 0
    assert [job["JobState"] for job in ended_jobs(cluster)[before:]] == ["TIMEOUT"]
    assert not target.exists()
    completed(own_copy, *with_profile("slurm", name))
    assert results_of(own_copy, SITE)["async_timing"].count("ok")


def test_what_the_jobs_of_a_killed_workflow_finish_is_not_done_again(cluster: Path, own_copy: Path) -> None:
    names = ("async_timing", "copy_cost", "model_parallel")
    for name in names:
        (own_copy / "results" / SITE / f"{name}.json").unlink()
    before = len(ended_jobs(cluster))
    running = submit_in_background(own_copy)
    deadline = time.monotonic() + 120
    while len(marked_jobs(own_copy / ".snakemake")) < len(names) and time.monotonic() < deadline:
        time.sleep(0.2)
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    completed(own_copy, *with_profile("slurm", "--unlock"))
    completed(own_copy, *with_profile("slurm"))
    jobs = ended_jobs(cluster)[before:]
    assert len(jobs) == len(names), "nothing was submitted again"
    first, second = spans(jobs).values()
    assert any(a < d and c < b for a, b in first for c, d in second), "two nodes measure at the same time"
    results = results_of(own_copy, SITE)
    assert all(results[name].count("ok") for name in names)
