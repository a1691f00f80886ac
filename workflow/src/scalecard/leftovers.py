"""What a killed workflow left on a cluster: its jobs go on, and what they finish is taken as it is.

Snakemake marks the output of a job that it submits, with the scheduler's number for the job, until it sees it end;
killed meanwhile, it would do everything that is marked again. A result is renamed into its place when it is whole, so
one that is younger than its mark, made from the values that are asked for now, is finished. Jobs in Slurm's queue are
waited for, because its plugin cannot take them over.
"""

import base64
import binascii
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalecard import schema

STATE = Path(".snakemake")
LOOKING = (
    *(
        "--dry",
        "--lint",
        "--report",
        "--summary",
        "--detailed-summary",
        "--dag",
        "--rulegraph",
        "--filegraph",
        "--d3dag",
    ),
    *("--list", "--touch", "--unlock", "--archive", "--cleanup", "--containerize"),
)
PAUSE = 10  # seconds between two looks at the queue


@dataclass(frozen=True)
class Leftover:
    """A marked result: the mark, the experiment, its file, and the job's number where it was submitted."""

    mark: Path
    name: str
    result: Path
    job: str | None


def settle(
    folder: Path, blocks: Mapping[str, str], *, wait: Callable[[list[str]], None] | None = None, state: Path = STATE
) -> list[str]:
    """Unmark the finished results in `folder`, and return the experiments' names; `wait` gets the jobs' numbers.

    Nothing is done while a workflow is running: the marks are its own.
    """
    if any((state / "locks").glob("*")):
        return []
    found = list(_leftovers(folder, blocks, state / "incomplete"))
    if wait:
        wait([leftover.job for leftover in found if leftover.job])
    finished = [leftover for leftover in found if _is_finished(leftover, blocks[leftover.name])]
    for leftover in finished:
        leftover.mark.unlink(missing_ok=True)
        Path(state, "metadata", leftover.mark.relative_to(state / "incomplete")).unlink(missing_ok=True)
    return [leftover.name for leftover in finished]


def only_looks(arguments: Sequence[str]) -> bool:
    """Whether this command line of Snakemake runs no job."""
    return any(re.fullmatch(r"-[a-z]*n[a-z]*", arg) or arg.startswith(LOOKING) for arg in arguments)


def unlike(folder: Path, blocks: Mapping[str, str], *, state: Path = STATE) -> Iterator[str]:
    """The results of which Snakemake has no record, so that it does not see that they have other values than asked."""
    for name, block in blocks.items():
        result = folder / f"{name}.json"
        if result.exists() and not Path(state, "metadata", _key(result)).exists():
            try:
                if schema.load(result).spec != json.loads(block):
                    yield name
            except schema.InvalidResult:
                continue  # the report names it


def _key(path: Path) -> str:
    """What Snakemake calls its record of a file."""
    return base64.b64encode(str(path).encode()).decode()


def _leftovers(folder: Path, blocks: Mapping[str, str], marks: Path) -> Iterator[Leftover]:
    names = {f"{folder}/{name}.json": name for name in blocks}
    for mark in sorted(path for path in marks.rglob("*") if path.is_file()):
        try:
            marked = base64.b64decode("".join(mark.relative_to(marks).parts)).decode()
            job = json.loads(mark.read_text())["external_jobid"]
        except (binascii.Error, ValueError, KeyError, TypeError):
            continue  # not in the form that we know: Snakemake does the job again, as without us
        if marked in names:
            yield Leftover(mark, names[marked], Path(marked), job)


def _is_finished(leftover: Leftover, block: str) -> bool:
    try:
        if leftover.result.stat().st_mtime_ns < leftover.mark.stat().st_mtime_ns:
            return False  # of an earlier run: the job that was to replace it has not come so far
        return bool(schema.load(leftover.result).spec == json.loads(block))
    except (FileNotFoundError, schema.InvalidResult):
        return False


def wait_for_slurm(jobs: list[str]) -> None:
    """Return when none of these is in Slurm's queue any more."""
    while alive := sorted(set(jobs) & _queued()):
        print(f"waiting for Slurm's jobs {', '.join(alive)}, which a killed run left; scancel ends them", flush=True)
        time.sleep(PAUSE)


def _queued() -> set[str]:
    command = ["squeue", "--noheader", "--me", "--format=%A"]
    while (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        print(f"{' '.join(command)}: {done.stderr.strip()}; asking again", flush=True)
        time.sleep(PAUSE)
    return set(done.stdout.split())
