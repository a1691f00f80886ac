"""The profile for Kubernetes, as far as a stand-in for its API server whose pods are processes here."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scalecard.jobs import kubernetes_pods, plan
from support.projects import SITE, copy_project, planned, results_of, set_up_site, snakemake, with_profile

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not shutil.which("rsync"), reason="needs rsync, as the profile does"),
]


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


def test_pods_measure_and_each_asks_for_a_node_with_all_its_gpus_for_itself(
    tmp_path: Path, kubernetes: type[ApiServer]
) -> None:
    folder = copy_project(tmp_path / "project")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    digest = "sha256:" + "ab" * 32
    changes = {"scalecard:/scalecard ": f"scalecard:{folder} ", "/scalecard/project": str(folder)}
    set_up_site(folder, "kubernetes", {**changes, "sha256:0000": digest, "gpu: 8": "gpu: 4"})
    assert f"{SITE}/machine.json" in planned(folder, *with_profile("kubernetes"))

    target = f"results/{SITE}/async_timing.json"
    done = snakemake(folder, *with_profile("kubernetes", target), KUBECONFIG=str(tmp_path / "kubeconfig"))
    logs = "".join(log.read_text() for log in (tmp_path / "pods").glob("*/log"))
    assert done.returncode == 0, done.stdout[-3000:] + logs[-6000:]
    result = results_of(folder, SITE)["async_timing"]
    assert (result.platform, result.environment["container"]) == (SITE, digest)
    assert result.environment["container_engine"] == "kubernetes"
    assert len(kubernetes.jobs) == 2, "one describes the node, one measures"
    describing, measuring = (job["spec"]["template"]["spec"] for job in kubernetes.jobs.values())
    assert describing["activeDeadlineSeconds"] == 60 * (10 + kubernetes_pods.TO_PULL), "rule machine's runtime"
    share = 1  # minutes, rounded up: its part of the budget of 60
    assert measuring["activeDeadlineSeconds"] == 60 * (share + plan.SLACK + kubernetes_pods.TO_PULL)
    for job in kubernetes.jobs.values():
        template = job["spec"]["template"]
        (container,) = template["spec"]["containers"]
        assert template["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        assert not any("pip install" in part for part in container["args"]), "all that a pod needs is in its image"
        assert {"name": "PIP_NO_INDEX", "value": "1"} in container["env"]
        assert container["image"] == f"registry.example/scalecard@{digest}"
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
        assert "cpu" not in container["resources"]["limits"], "all cores of the node"
        assert {"name": "shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
        (rule,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        assert rule["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
