"""What a killed run may have left: temporary folders and semaphores of its measurements, and unfinished files."""

import itertools
from pathlib import Path

from scalecard.hardware import scratch
from scalecard.records.atomic import remove_unfinished

RESULTS = Path("results")
STATE = Path(".snakemake")


def remove() -> None:
    """Remove it, with a line that names the folders; what a living process uses stays."""
    remove_unfinished(itertools.chain(RESULTS.rglob(".*"), STATE.glob(".scalecard-*")))
    for folder in scratch.remove_dead():
        print(f"removed {folder}, left by a killed measurement", flush=True)
