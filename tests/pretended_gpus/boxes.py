"""Pretended boxes: the kinds of cards.yaml, the built libraries, and how a command is run on such a box."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from support.projects import ROOT

HERE = Path(__file__).parent
OLDEST_GCC = 12
DEFAULT = {"PRETEND_GPUS": "2"}  # H100s


@dataclass(frozen=True)
class Box:
    """What the libraries are to pretend; and, from cards.yaml, whether it must be refused, or why cases must fail."""

    variables: Mapping[str, str]
    refused: str = ""
    failing: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """For every process that is to see the cards. Threads of their own would only get into each other's way."""
        paths = [str(HERE / "site"), os.environ.get("PYTHONPATH", "")]
        return {
            **self.variables,
            "PRETEND_SHM": str(_messages()),
            "PRETEND_LIBS": str(libraries()),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
        }


def box(
    card: str | None,
    *,
    devices: int | None = None,
    memory: int | None = None,
    races: bool = False,
    energy: bool = True,
) -> Box:
    """The box of a kind of card, with so many devices and bytes of each; ValueError if there is no such kind.

    `races`: they are looked for. Without `energy` the cards have no counter of it, which saves a second per variant.
    """
    kinds = yaml.safe_load((HERE / "cards.yaml").read_text())
    if card is not None and card not in kinds:
        raise ValueError(f"--card {card}: must be one of {', '.join(kinds)}")
    facts = {key: str(value) for key, value in (kinds[card] if card else DEFAULT).items()}
    wanted = {
        "PRETEND_GPUS": devices,
        "PRETEND_MEMORY": memory,
        "PRETEND_RACES": int(races),
        "PRETEND_ENERGY": int(energy),
    }
    changes = {key: str(value) for key, value in wanted.items() if value is not None}
    refused, failing = facts.pop("refused", ""), facts.pop("failing", "")
    return Box({**facts, **changes}, refused, failing)


@functools.cache
def _messages() -> Path:
    """A folder in memory for NCCL's messages, removed with what killed ranks have left in it."""
    folder = Path(tempfile.mkdtemp(prefix="pretended-", dir="/dev/shm"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def libraries() -> Path:
    """The folder of the libraries, in this environment; they are built if their sources have changed."""
    folder = Path(sys.prefix) / "pretended"
    subprocess.run([str(HERE / "build.sh"), sysconfig.get_paths()["purelib"], str(folder)], check=True)
    return folder


def why_not() -> str:
    """The reason why they cannot be built here, or ''."""
    if not shutil.which("g++"):
        return f"needs gcc {OLDEST_GCC} or newer"
    version = subprocess.run(["g++", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    return "" if int(version.split(".")[0]) >= OLDEST_GCC else f"needs gcc {OLDEST_GCC} or newer, not {version.strip()}"


@functools.cache
def with_devices() -> tuple[str, ...]:
    """What a command begins with that is to find the cards in /sys and /dev; nothing where that cannot be pretended."""
    able = os.getuid() == 0 and not subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode
    return (str(HERE / "with_devices.sh"),) if able else ()


def run(box: Box, command: list[str], *, timeout: float, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The command on the box, in a folder; stdout and stderr together."""
    return subprocess.run(
        [*with_devices(), *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        env=os.environ | box.environment,
    )
