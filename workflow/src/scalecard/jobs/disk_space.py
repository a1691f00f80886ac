"""Fails early if the disk is full, in one sentence."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scalecard.jobs.config_file import InvalidConfig
from scalecard.jobs.slurm_leftovers import only_looks
from scalecard.records.atomic import FULL

NEEDED = 4 * 2**20  # bytes; results are smaller, and so are Snakemake's own temporary files


def check(arguments: Sequence[str], results: Path = Path("results")) -> None:
    """Write to the temporary folder and to that of the results; InvalidConfig names the one that cannot be written.

    Returns at once if this Snakemake command line runs no job.
    """
    if only_looks(arguments):
        return
    temporary = Path(os.environ.get("TMPDIR") or tempfile.gettempdir())
    for folder, what in ((temporary, "TMPDIR, the temporary folder"), (results, "the folder of the results")):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(NEEDED))
                file.flush()
        except OSError as error:
            amounts = f" ({_amounts(folder)})" if error.errno in FULL else ""
            raise InvalidConfig(f"{folder}: {what}: {error.strerror}{amounts}") from error


def _amounts(folder: Path) -> str:
    needed = f"{NEEDED / 2**20:.0f} MiB are needed"
    try:
        found = os.statvfs(folder)
    except OSError:
        return needed
    return f"{needed}, {found.f_bavail * found.f_frsize / 2**20:.1f} MiB are free"
