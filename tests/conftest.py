"""What the tests share: this machine, a fast measuring rule, result files, and a copy of the project to run in."""

import os
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
SITE = "test-nodes"  # the label of a cluster's nodes


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


def snakemake(folder: Path, *args: str, timeout: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
    """`snakemake` in that folder; stdout and stderr together."""
    return subprocess.run(
        [sys.executable, "-m", "snakemake", *args],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        env=os.environ | environment,
    )


def snakemake_in_background(folder: Path, log: Path, *args: str, **environment: str) -> "subprocess.Popen[bytes]":
    """The same, without waiting, with its output in a file: the orphans of a killed one would keep a pipe open."""
    command = [sys.executable, "-m", "snakemake", *args]
    with log.open("wb") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, env=os.environ | environment)


def with_profile(profile: str, *args: str) -> tuple[str, ...]:
    """Arguments for the smoke workflow through a profile. Files named *.yaml are further configuration."""
    configs = [arg for arg in args if arg.endswith(".yaml")]
    options = [arg for arg in args if not arg.endswith(".yaml")]
    return (*options, "--workflow-profile", profile, "--configfile", "tests/smoke.yaml", *configs)


def set_up_site(folder: Path, profile: str, changes: dict[str, str]) -> None:
    """Change a profile as a site does: each text, which must be there, for another one."""
    path = folder / "profiles" / profile / "config.yaml"
    text = path.read_text()
    for old, new in {"my-cluster": SITE, "scale: full": "scale: quick", **changes}.items():
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
