"""What the tests share: this machine, a fast measuring rule, result files, and a copy of the project to run in."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scalecard import machine as machines
from scalecard.measure import Rule
from scalecard.schema import Record, Result

ROOT = Path(__file__).parents[1]


@pytest.fixture
def machine() -> machines.Machine:
    return machines.probe()


@pytest.fixture
def rule() -> Rule:
    return Rule(
        warmup_seconds=0,
        block_seconds=0,
        min_rounds=6,
        max_rounds=40,
        min_seconds=0,
        max_seconds=5,
        precision=0.01,
        processes=1,
    )


@pytest.fixture
def make_result(machine: machines.Machine) -> Callable[..., Result]:
    def make(records: list[Record], **changes: Any) -> Result:
        facts: dict[str, Any] = {
            "experiment": "async_timing",
            "platform": "box",
            "spec": {},
            "environment": machines.environment(machine),
            "started": "2026-01-01T00:00:00.000+00:00",
            "finished": "2026-01-01T00:01:00.000+00:00",
            "warnings": [],
        }
        return Result(**{**facts, **changes}, records=records)

    return make


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, shared by the tests of one session."""
    return copy_project(tmp_path_factory.mktemp("project"))


def copy_project(folder: Path) -> Path:
    """Copy the files that git knows, without results, to a folder outside any repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists() and not name.startswith("results/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def snakemake(folder: Path, *args: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    """`snakemake` in that folder; stdout and stderr together."""
    command = [sys.executable, "-m", "snakemake", "--cores", "2", *args]
    return subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout
    )
