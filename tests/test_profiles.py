"""The profiles for other schedulers: Kubernetes as far as its API server, and a shell script as a generic scheduler."""

import base64
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import copy_project
from scalecard import leftovers, schema, settings

PROFILES = Path(__file__).parents[1] / "profiles"
LABEL = "test-nodes"


def snakemake(folder: Path, profile: str, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "snakemake", *args, "--workflow-profile", profile, "--configfile", "tests/smoke.yaml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        env=os.environ | environment,
    )


def site(folder: Path, profile: str, changes: dict[str, str]) -> None:
    path = folder / "profiles" / profile / "config.yaml"
    text = path.read_text()
    for old, new in {"my-cluster": LABEL, "scale: full": "scale: quick", **changes}.items():
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cluster": "slurm"}, "platform = auto: this is not the machine that is measured; set a label"),
        ({"cluster": "slurm", "platform": "a100"}, "scale = auto: this is not the machine that is measured"),
        ({"nodes": 2}, "nodes = 2: only `snakemake --workflow-profile slurm` starts a job on several nodes"),
        ({"cluster": "pbs"}, "cluster: 'pbs' is not one of ['none', 'slurm', 'kubernetes', 'generic']"),
    ],
)
def test_what_cannot_be_guessed_on_a_cluster_is_asked_for(changes: dict[str, Any], expected: str) -> None:
    config = yaml.safe_load((PROFILES.parent / "config.yaml").read_text())
    with pytest.raises(settings.InvalidConfig) as error:
        settings.resolve({**config, **changes}, check=False)
    assert expected in str(error.value)


def test_what_the_job_of_a_killed_workflow_finished_is_told_from_what_lay_there(
    tmp_path: Path, make_result: Callable[..., schema.Result]
) -> None:
    spec = {"size": 4}
    nothing = schema.Record(case={}, metric="time", unit="s", status="skipped", note="for a test")
    blocks = {name: json.dumps(spec) for name in ("ddp", "hybrid", "pipeline", "allreduce")}
    marks = tmp_path / "incomplete"
    marks.mkdir()

    def mark(name: str) -> Path:
        path = marks / base64.b64encode(f"{tmp_path}/{name}.json".encode()).decode()
        path.write_text(json.dumps({"external_jobid": f"1{len(name)}"}))
        return path

    def result(name: str, spec: dict[str, int], age: float) -> None:
        schema.save(make_result([nothing], experiment=name, spec=spec), tmp_path / f"{name}.json")
        then = time.time() - age
        os.utime(tmp_path / f"{name}.json", (then, then))

    marked = {name: mark(name) for name in blocks}
    (marks / "c29tZXRoaW5nIGVsc2U=").write_text("{}")
    result("ddp", spec, age=-10)
    result("hybrid", {"size": 5}, age=-10)
    result("pipeline", spec, age=10)
    waited: list[str] = []
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "0.output.lock").touch()
    assert leftovers.settle(tmp_path, blocks, state=tmp_path) == [], "another workflow is running"
    (tmp_path / "locks" / "0.output.lock").unlink()
    assert leftovers.settle(tmp_path, blocks, wait=waited.extend, state=tmp_path) == ["ddp"]
    assert sorted(waited) == ["13", "16", "18", "19"]
    assert {name for name, path in marked.items() if path.exists()} == {"hybrid", "pipeline", "allreduce"}
    assert list(leftovers.unlike(tmp_path, blocks, state=tmp_path)) == ["hybrid"], "no record, and other values"


@pytest.mark.parametrize(
    ("line", "looks"),
    [
        ("-n", True),
        ("-nq", True),
        ("--dry-run", True),
        ("--unlock", True),
        ("--report x.html", True),
        ("-c all", False),
    ],
)
def test_what_only_looks_waits_for_nothing(line: str, looks: bool) -> None:
    assert leftovers.only_looks(["snakemake", "--workflow-profile", "slurm", *line.split()]) == looks


class ApiServer(http.server.BaseHTTPRequestHandler):
    """As much of Kubernetes as the executor talks to: a job's pod is its command, run in an empty folder."""

    jobs: dict[str, dict[str, Any]]
    folder: Path

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/jobs"):
            self.jobs[body["metadata"]["name"]] = body
            body["status"] = {}
            threading.Thread(target=self.run_pod, args=(body,), daemon=True).start()
        self.answer(201, body)

    def do_GET(self) -> None:
        path = self.path.split("?")[0].split("/")
        self.answer(200, self.jobs[path[-2]] if path[-1] == "status" else {"kind": "PodList", "items": []})

    def do_DELETE(self) -> None:
        self.answer(200, {})

    def run_pod(self, job: dict[str, Any]) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        pod = self.folder / job["metadata"]["name"]
        pod.mkdir()
        given = {e["name"]: e["value"] for e in container["env"] if "value" in e}
        kept = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": str(pod), **kept, **given}
        with (pod / "log").open("wb") as log:
            command = [*container["command"], *container["args"]]
            done = subprocess.run(command, cwd=pod, env=environment, stdout=log, stderr=log)
        job["status"] = {"failed": 1} if done.returncode else {"succeeded": 1}

    def answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[type[ApiServer]]:
    """A server on this machine, and a file `kubeconfig` that says where."""
    (tmp_path / "pods").mkdir()
    handler: type[ApiServer] = type("Handler", (ApiServer,), {"jobs": {}, "folder": tmp_path / "pods"})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "we", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "here", "user": "we"}}],
        "current-context": "test",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    yield handler
    server.shutdown()


@pytest.mark.skipif(not shutil.which("rsync"), reason="needs rsync, as the profile does")
def test_pods_measure_and_each_asks_for_a_node_with_all_its_gpus_for_itself(
    tmp_path: Path, kubernetes: type[ApiServer]
) -> None:
    folder = copy_project(tmp_path / "project")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    digest = "sha256:" + "ab" * 32
    changes = {"scalecard:/scalecard ": f"scalecard:{folder} ", "/scalecard/project": str(folder)}
    site(folder, "kubernetes", {**changes, "sha256:0000": digest, "gpu: 8": "gpu: 4"})
    planned = snakemake(folder, "kubernetes", "-n")
    assert planned.returncode == 0, planned.stdout[-3000:]
    assert re.search(r"^machine +1$", planned.stdout, re.MULTILINE)

    target = f"results/{LABEL}/async_timing.json"
    done = snakemake(folder, "kubernetes", target, KUBECONFIG=str(tmp_path / "kubeconfig"))
    logs = "".join(log.read_text() for log in (tmp_path / "pods").glob("*/log"))
    assert done.returncode == 0, done.stdout[-3000:] + logs[-6000:]
    result = schema.load(folder / target)
    assert (result.platform, result.environment["container"]) == (LABEL, digest)
    assert result.environment["container_engine"] == "kubernetes"
    assert len(kubernetes.jobs) == 2, "one describes the node, one measures"
    for job in kubernetes.jobs.values():
        template = job["spec"]["template"]
        (container,) = template["spec"]["containers"]
        assert container["image"] == f"registry.example/scalecard@{digest}"
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
        assert "cpu" not in container["resources"]["limits"], "all cores of the node"
        assert {"name": "shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
        (rule,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        assert rule["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


SCHEDULER = """#!/usr/bin/env python3
# submit SCRIPT | status NUMBER: jobs one after the other, each on the whole machine; all but the first wait for `go`
import fcntl, os, subprocess, sys, time
from pathlib import Path
here = Path(__file__).parent / "jobs"
here.mkdir(exist_ok=True)
what, which = sys.argv[1:]
if what == "submit":
    script = Path(which).read_text()
    number = str(len(list(here.iterdir())) + 1)
    job = here / number
    job.mkdir()
    (job / "script").write_text(script)
    print(number, flush=True)
    if os.fork() == 0:
        os.setsid()
        out = os.open(job / "log", os.O_CREAT | os.O_WRONLY)
        for stream in (0, 1, 2):
            os.dup2(out, stream)
        with open(here.parent / "node", "w") as node:
            fcntl.flock(node, fcntl.LOCK_EX)
            while number != "1" and not (here.parent / "go").exists():
                time.sleep(0.1)
            done = subprocess.run(["sh", job / "script"])
        (job / "status").write_text("failed" if done.returncode else "success")
elif what == "status":
    status = here / which / "status"
    print(status.read_text() if status.exists() else "running")
"""


def numbers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "jobs").glob("*"))


def start(folder: Path, log: str, *args: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "snakemake", *args, "--workflow-profile", "generic"]
    with (folder / log).open("wb") as out:
        return subprocess.Popen([*command, "--configfile", "tests/smoke.yaml"], cwd=folder, stdout=out, stderr=out)


def wait_until(happened: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.1)


def test_a_shell_script_as_scheduler_and_a_killed_workflow_takes_its_jobs_over(tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "project")
    (folder / "scheduler").write_text(SCHEDULER)
    (folder / "scheduler").chmod(0o755)
    commands = "\n".join(f"cluster-generic-{what}-cmd: ./scheduler {what}" for what in ("submit", "status"))
    site(folder, "generic", {"jobs: 20": f"{commands}\nseconds-between-status-checks: 1\njobs: 20"})
    targets = [f"results/{LABEL}/{name}.json" for name in ("allreduce", "async_timing")]
    first, again = folder / "first.log", folder / "again.log"
    running = start(folder, first.name, *targets)
    wait_until(lambda: first.read_text().count("with external jobid") == 3, first)  # the machine, then both experiments
    time.sleep(2)  # until the numbers are on file
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    assert snakemake(folder, "generic", "--unlock").returncode == 0
    running = start(folder, again.name, *targets)
    wait_until(lambda: again.read_text().count("Resuming incomplete job") == 2, again)
    (folder / "go").touch()
    assert running.wait(300) == 0, again.read_text()[-4000:]
    assert numbers(folder) == ["1", "2", "3"], "nothing was submitted again"
    for target in targets:
        assert schema.load(folder / target).platform == LABEL


FAKES = {
    "PBS": (
        "qstat",
        {
            "echo '    job_state = R'": "running",
            "printf 'job_state = F\\n Exit_status = 0\\n'": "success",
            "printf 'job_state = F\\n Exit_status = 271\\n'": "failed",
            "exit 35": "success",
        },
    ),
    "LSF": (
        "bjobs",
        {
            "echo RUN": "running",
            "echo PEND": "running",
            "echo DONE": "success",
            "echo EXIT": "failed",
            "exit 255": "success",
        },
    ),
}


@pytest.mark.parametrize("scheduler", ["PBS", "LSF", "SGE"])
def test_the_commented_commands_are_yaml_and_the_status_is_understood(scheduler: str, tmp_path: Path) -> None:
    text = (PROFILES / "generic" / "config.yaml").read_text()
    block = re.search(rf"^# --- {scheduler}.*?\n(.*?)^# ?(---|$)", text, re.MULTILINE | re.DOTALL)
    assert block
    found = yaml.safe_load(re.sub(r"^# ?", "", block[1], flags=re.MULTILINE))
    assert sorted(found) == [f"cluster-generic-{what}-cmd" for what in ("cancel", "status", "submit")]
    assert "{resources.runtime}" in found["cluster-generic-submit-cmd"]

    def status(**said: str) -> str:
        for name, answer in said.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        command = f"{found['cluster-generic-status-cmd']} '17'"
        return subprocess.check_output(command, shell=True, text=True, env={"PATH": path}).strip()

    if scheduler == "SGE":
        assert status(qstat="exit 0", qacct="exit 1") == "running"
        assert status(qstat="exit 1", qacct="exit 1") == "running", "not in the accounts so far"
        assert status(qstat="exit 1", qacct="echo 'exit_status  0'") == "success"
        assert status(qstat="exit 1", qacct="echo 'exit_status  137'") == "failed"
        return
    name, answers = FAKES[scheduler]
    for said, expected in answers.items():
        assert status(**{name: said}) == expected
