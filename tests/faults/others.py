"""A rank that is killed or stopped, a clock that is set back, and two workflows at once."""

import itertools
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from workplace import Unexpected, Workplace, ended

TIMEOUT = 10  # seconds that a rank waits for the others
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(id, t);
    const char *mark = getenv("FAULTS_CLOCK");
    if (id == CLOCK_REALTIME && mark && !access(mark, F_OK)) t->tv_sec -= 3600;
    return status;
}
"""


def killed_rank(place: Workplace) -> str:
    return _lost_rank(place, signal.SIGKILL, "was killed by signal 9")


def stopped_rank(place: Workplace) -> str:
    return _lost_rank(place, signal.SIGSTOP, "rank 1 did not answer")


def _lost_rank(place: Workplace, sent: signal.Signals, said: str) -> str:
    """It is named within the timeout; its cases are listed at the end, and measured again by the next run, once."""
    running = place.start("--forcerun", "allreduce", SCALECARD_TIMEOUT=str(TIMEOUT))
    ranks: list[psutil.Process] = []

    def two_measure() -> bool:
        """Not those that prove on three ranks; they work for a second."""
        ranks[:] = place.ranks() if "torch.distributed, 2 ranks" in place.said() else []
        return len(ranks) > 1

    with ended(running):
        place.wait_for(two_measure, running)
        ranks[-1].send_signal(sent)
        lost = time.monotonic()
        place.wait_for(lambda: "failed: " in place.said(), running)
        seconds = time.monotonic() - lost
        if running.wait(300) != 1 or "Done in" not in place.said():
            raise Unexpected(f"the run did not end with status 1 once everything was done: {place.said()[-1500:]}")
    notes = [r["note"] for r in _records(place.result("allreduce")) if r["status"] == "failed"]
    if not notes or not all(said in note for note in notes):
        raise Unexpected(f"the record says {notes}")
    if seconds > TIMEOUT + 20:  # of which the other rank may spend some before it waits
        raise Unexpected(f"it took {seconds:.0f} s")
    last = place.said().strip().splitlines()
    if not any(line.startswith("Failed: ") and "once more" in line for line in last[-8:]):
        raise Unexpected(f"nothing at the end names the cases: {last[-8:]}")
    place.complete()
    if any(r["status"] == "failed" for r in _records(place.result("allreduce"))):
        raise Unexpected("the next run did not measure it again")
    if survivors := place.survivors():
        raise Unexpected(f"survived: {survivors}")
    return f"after {seconds:.0f} s of {TIMEOUT}: {notes[0]}"


def _records(path: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(path.read_text())["records"]
    return records


def clock_set_back(place: Workplace) -> str:
    """By an hour, while it measures, for this run only."""
    if not (compiler := shutil.which("cc")):
        return "skipped: no C compiler"
    source, library, mark = (place.base / name for name in ("clock.c", "clock.so", "clock-is-back"))
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    running = place.start("--forcerun", place.experiments[0], LD_PRELOAD=str(library), FAULTS_CLOCK=str(mark))
    with ended(running):
        place.wait_for(lambda: f"[{place.experiments[0]}" in place.said() and "/2 " in place.said(), running)
        mark.touch()
        if running.wait(300):
            raise Unexpected(f"the run failed: {place.said()[-1500:]}")
    mark.unlink()
    result = json.loads(place.result(place.experiments[0]).read_text())
    if datetime.fromisoformat(result["finished"]) < datetime.fromisoformat(result["started"]):
        raise Unexpected("`finished` is before `started`")
    told = [text for text in result["warnings"] if "clock was set back" in text]
    if not told:
        raise Unexpected("nothing says that the clock was set")
    return f"said: {told[0]}"


def two_in_one_folder(place: Workplace) -> str:
    """The second is refused by Snakemake's lock, and the first never notices."""
    first = place.start(*place.again())
    log = place.log.rename(place.log.with_suffix(".first"))
    with ended(first):
        while not list((place.folder / ".snakemake" / "locks").glob("*")):
            time.sleep(0.1)
        second = place.start(*place.again())
        with ended(second):
            if second.wait(300) == 0 or "LockException" not in place.said():
                raise Unexpected(f"the second was not refused: {place.said()[-1500:]}")
        if first.wait(300):
            raise Unexpected(f"the first failed: {log.read_text()[-1500:]}")
    return "the second was refused, the first completed"


def two_in_two_folders(place: Workplace) -> str:
    """Both complete, one measurement at a time."""
    other = Workplace(place.base, "other", place.experiments)
    both = [each.start(*each.again()) for each in (place, other)]
    with ended(both[0]), ended(both[1]):
        for each, running in zip((place, other), both, strict=True):
            if running.wait(900):
                raise Unexpected(f"one failed: {each.said()[-1500:]}")
    spans = sorted(_span(each.result(name)) for each in (place, other) for name in place.experiments)
    for (_, end), (start, _) in itertools.pairwise(spans):
        if end > start:
            raise Unexpected("two measurements overlapped")
    if other.left():
        raise Unexpected(f"left: {other.left()}")
    return f"{len(spans)} measurements, none beside another"


def _span(path: Path) -> tuple[datetime, datetime]:
    result = json.loads(path.read_text())
    return datetime.fromisoformat(result["started"]), datetime.fromisoformat(result["finished"])


ALL: dict[str, Callable[[Workplace], str]] = {
    "a rank is killed": killed_rank,
    "a rank is stopped": stopped_rank,
    "the clock is set back": clock_set_back,
    "two workflows in one folder": two_in_one_folder,
    "two workflows in two folders": two_in_two_folders,
}
