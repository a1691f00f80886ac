"""Checks the blocks of config.yaml by the experiments' Specs, which need torch: in a process, or in the image.

What passed is remembered, so that only other values and other code are checked. A host that only starts containers has
no torch: there the image is asked. Where it is still to be built, the rule that builds it asks, so that a wrong value
stops the workflow before anything is measured.
"""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from scalecard.hardware import isolation
from scalecard.jobs.config_file import InvalidConfig
from scalecard.jobs.containers import launch
from scalecard.jobs.containers.engines import Marker, read_marker
from scalecard.jobs.source_code import SOURCES
from scalecard.records.atomic import write_atomically

BLOCKS = Path(".snakemake/scalecard-blocks.json")  # what is checked: longer than a command line may be
CHECKED = Path(".snakemake/scalecard-checked")
HOST = Marker(engine="none", why="")


def has_torch() -> bool:
    """Whether this Python has PyTorch; nothing is imported."""
    return importlib.util.find_spec("torch") is not None


def place(marker: Path | None) -> Marker | None:
    """Where the Specs can be built: on the host, in the image that this marker names, or nowhere yet.

    No marker: the image is for other machines. Without PyTorch here, each job checks its own block there.
    """
    if has_torch():
        return HOST
    found = read_marker(marker) if marker and marker.exists() else HOST
    return None if found.engine == "none" else found


def check(blocks: str, where: Marker | None, *, packages_in_image: bool = False, just_built: bool = False) -> None:
    """Build every Spec of the blocks, JSON of scale to experiment to block; InvalidConfig lists every problem.

    `packages_in_image`: what the user's files import may be there alone, where each Spec is built again. An image that
    was not `just_built` may be gone; then the rule that builds it asks again.
    """
    own = {"SCALECARD_PACKAGES_IN_IMAGE": "1" if packages_in_image else ""}
    code = (path.read_bytes() for path in sorted(SOURCES.rglob("*.py")))
    key = hashlib.sha256(b"".join([blocks.encode(), json.dumps(own).encode(), *code])).hexdigest()
    if CHECKED.exists() and CHECKED.read_text() == key:
        return
    write_atomically(BLOCKS, blocks)
    if where:
        called = _call(where)
        done = subprocess.run(called.argv, capture_output=True, text=True, env={**called.environment, **own})
        if where.engine != "none" and done.returncode not in (0, 2) and not just_built:
            return
        _refuse(done)
        write_atomically(CHECKED, key)


def check_in_image(made: Marker) -> None:
    """Check what could not be checked without the image; ValueError if there is neither an image nor torch here."""
    if has_torch():
        return
    if made.engine == "none":
        raise ValueError(
            f"no container ({made.why}), and {sys.executable} has no PyTorch to measure without one: run `make`, which"
            " installs the locked one, or start a container engine"
        )
    if BLOCKS.exists():
        check(BLOCKS.read_text(), made, just_built=True)


def _call(where: Marker) -> launch.Call:
    command = [sys.executable if where.engine == "none" else "python", "-m", "scalecard", "check", str(BLOCKS)]
    if where.engine != "none":
        isolation.make_lock_file()
        return launch.call(where, command, project=Path.cwd(), writable=[], gpus=False)
    path = [str(SOURCES.parent.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    return launch.Call(command, os.environ | {"PYTHONPATH": os.pathsep.join(path)})


def _refuse(done: "subprocess.CompletedProcess[str]") -> None:
    """InvalidConfig if the check has found problems, or has failed."""
    if done.returncode == 2:
        problems = "\n".join(f"  {line}" for line in done.stderr.strip().splitlines())
        raise InvalidConfig(f"the configuration is not valid:\n{problems}")
    signal = -done.returncode if done.returncode < 0 else done.returncode - 128  # as a shell of a container says it
    if signal > 0:
        raise InvalidConfig(f"the configuration could not be checked: signal {signal}; is memory short?")
    if done.returncode:
        raise InvalidConfig(f"the configuration could not be checked:\n{done.stderr[-2000:]}")
