"""Copies of the project to run the workflow in, and what a run of it would do or has done.

Neither is read from the workflow's messages: the first is Snakemake's `--summary`, the second are the files.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
from scalecard import experiments, exports
from scalecard.hardware.machine import probe
from scalecard.records.files import is_result_file, load
from scalecard.records.record import Result
from scalecard.report import answers
from scalecard.report.downloads import FIGURES

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "tests/fixtures/measured"  # what two H200s measured, for tests
SMOKE = ("--configfile", "tests/smoke.yaml")
SITE = "test-nodes"  # the label of a cluster's nodes
HUNG = 2100  # seconds that no run takes, also beside three other groups on two cores


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


def snakemake(folder: Path, *args: str, timeout: float = HUNG, **environment: str) -> subprocess.CompletedProcess[str]:
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


def completed(folder: Path, *args: str, timeout: float = HUNG, **environment: str) -> str:
    """What `snakemake` says where it must succeed."""
    done = snakemake(folder, *args, timeout=timeout, **environment)
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def snakemake_in_background(folder: Path, log: Path, *args: str, **environment: str) -> "subprocess.Popen[bytes]":
    """The same, without waiting, with its output in a file: the orphans of a killed one would keep a pipe open."""
    command = [sys.executable, "-m", "snakemake", *args]
    with log.open("wb") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, env=os.environ | environment)


def planned(folder: Path, *args: str) -> set[str]:
    """What a run with these arguments would make, as paths under results: from Snakemake's table of all outputs."""
    rows = [line.split("\t") for line in completed(folder, *args, "--summary").splitlines()]
    return {row[0].rpartition("results/")[2] for row in rows if row[-1] == "update pending"}


def made_at(folder: Path) -> dict[str, int]:
    """When each file under results was written, logs and traces apart."""
    paths = [path for path in (folder / "results").rglob("*") if path.is_file() and path.suffix not in (".log", ".gz")]
    return {str(path.relative_to(folder / "results")): path.stat().st_mtime_ns for path in paths}


def made_since(folder: Path, before: dict[str, int]) -> set[str]:
    """What was made after made_at() gave `before`."""
    return {path for path, _ in made_at(folder).items() - before.items()}


def outputs(measured: Iterable[str] = (), *, figures: Iterable[str] = (), exported: bool = False) -> set[str]:
    """What a run makes that measures these experiments here, and draws these figures (and exports) besides.

    Answers and exports rest on every experiment.
    """
    measured, here = list(measured), probe().slug
    drawn = {*measured, *figures, *(answers.names() if measured else ())}
    images = {f"figures/{name}.{suffix}" for name in drawn for suffix in (*FIGURES, "html")}
    every = experiments.names()
    files = [*exports.linked(every), *exports.beside(every)] if exported or measured else []
    made = {f"{here}/{name}.json" for name in measured} | images | {f"exports/{here}/{name}" for name in files}
    return made | ({"report.html", "report.zip", "logs/report/left_out.json"} if made else set())


def results_of(folder: Path, platform: str | None = None) -> dict[str, Result]:
    """The results of a platform by experiment; without a platform, of this machine's own."""
    paths = sorted((folder / "results" / (platform or probe().slug)).glob("*.json"))
    return {path.stem: load(path) for path in paths if is_result_file(path)}


def with_profile(profile: str, *args: str) -> tuple[str, ...]:
    """Arguments for the smoke workflow through a profile. Files named *.yaml are further configuration."""
    configs = [arg for arg in args if arg.endswith(".yaml")]
    options = [arg for arg in args if not arg.endswith(".yaml")]
    return (*options, "--workflow-profile", profile, *SMOKE, *configs)


def leave_out(folder: Path, names: Iterable[str]) -> None:
    """Remove the blocks of these experiments, as a user does."""
    for path in (folder / "config.yaml", folder / "tests" / "smoke.yaml"):
        text = path.read_text()
        for name in names:
            text, number = re.subn(rf"(?m)^  {name}:\n(?:    .*\n|\n)+", "", text)
            assert number == 1, f"{path.name}: {name}"
        path.write_text(text)


def set_up_site(folder: Path, profile: str, changes: dict[str, str]) -> None:
    """Change a profile as a site does: each text, which must be there, for another one."""
    path = folder / "profiles" / profile / "config.yaml"
    text = path.read_text()
    for old, new in {"my-cluster": SITE, "scale: full": "scale: quick", **changes}.items():
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


def is_rank(process: psutil.Process) -> bool:
    """It is forked from a server, which is forked from the process that measures and has its command line."""
    parents = process.parents()[:2]
    return len(parents) == 2 and all("--multiprocessing-fork" in one.cmdline() for one in parents)
