"""Experiments on two pretended nodes, which are network namespaces with the same kind of cards in each."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from boxes import Box, with_devices
from support.blocks import smoke_block
from support.namespaces import ADDRESSES, on_host, two_hosts

EXPERIMENTS = ("health", "allreduce", "ddp", "strategies")
PLATFORM = "pretended"
PORT = 29400


def measure(box: Box, project: Path, names: list[str], *, timeout: float) -> tuple[int, str]:
    """Measure each experiment on both nodes into the project's results. The worst exit status, and the log."""
    machine = project / "results" / PLATFORM / "machine.json"
    machine.parent.mkdir(parents=True, exist_ok=True)
    described = subprocess.run(
        [*with_devices(), sys.executable, "-m", "scalecard", "probe", "--output", str(machine)],
        cwd=project,
        capture_output=True,
        text=True,
        env=os.environ | box.environment,
    )
    statuses, printed = [described.returncode], described.stderr
    with two_hosts():
        for name in names:
            status, text = _on_both(box, project, name, timeout)
            statuses.append(status)
            printed += text
    return max(statuses), printed


def _on_both(box: Box, project: Path, name: str, timeout: float) -> tuple[int, str]:
    """One experiment: the same command on each node, as jobs/every_node.py starts it in a Slurm job."""
    results = project / "results" / PLATFORM
    wanted = ["--spec", smoke_block(name, nodes=2), "--machine", str(results / "machine.json")]
    command = [sys.executable, "-m", "scalecard", "run", name, *wanted, "--output", str(results / f"{name}.json")]
    with tempfile.TemporaryFile("w+") as log:
        nodes = [
            subprocess.Popen(
                on_host(index, [*with_devices(), *command]),
                cwd=project,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | box.environment | _place(index),
            )
            for index in (0, 1)
        ]
        try:
            status = max(abs(node.wait(timeout)) for node in nodes)
        finally:
            for node in nodes:
                node.kill()
        log.seek(0)
        return status, log.read()


def _place(index: int) -> dict[str, str]:
    return {
        "PRETEND_NODE": str(index),
        "SCALECARD_NODES": "2",
        "SCALECARD_NODE": str(index),
        "SCALECARD_RENDEZVOUS": f"{ADDRESSES[0]}:{PORT}",
    }
