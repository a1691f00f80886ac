"""The versions in docker/requirements.lock, which the image has, and the environment that `make` creates."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[4]
PROJECT = Path(os.path.relpath(ROOT))  # as Snakemake's inputs name it: elsewhere if the workflow is another's module
LOCK = ROOT / "docker" / "requirements.lock"


def locked_version(packages: Sequence[str]) -> str:
    """The version of the first of these packages that is locked; OSError if none is."""
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))
    for package in packages:
        if package in versions:
            return str(versions[package])
    raise OSError(f"{' or '.join(packages)} is not in {LOCK.name}")
