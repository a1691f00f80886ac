"""Does `compare` cry wolf, and does it see a wolf? The same work as two platforms, and 5 % more work as a third.

Another process keeps a core busy half of the time. The work is hashing, which takes the same time in every process
where nothing disturbs it; fresh processes multiplying small matrices differ by several per cent by themselves.

Result      a line a comparison, then how often each verdict fell; exit status 1 if a promise is not kept
Reproduce   PYTHONPATH=workflow/src python tests/benchmarks/aa.py        (about 15 minutes)
"""

import argparse
import hashlib
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from scalecard.hardware.environment import environment
from scalecard.hardware.machine import probe
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.rule import Rule
from scalecard.measuring.variant import Variant
from scalecard.records.files import save
from scalecard.records.merge import merged
from scalecard.records.record import Record, Result

RULE = Rule(
    warmup_seconds=0.1,
    block_seconds=0.02,
    min_rounds=24,
    max_rounds=24,
    min_seconds=0,
    max_seconds=9,
    precision=0.01,
    processes=1,
)
UNITS = 100  # of work in one call
BYTES_OF_A_UNIT = 40_000
DATA = memoryview(bytes(2 * UNITS * BYTES_OF_A_UNIT))  # made once: asking the system for memory is what varies most


def work(units: int) -> None:
    hashlib.sha256(DATA[: units * BYTES_OF_A_UNIT]).digest()


def work_in_a_fresh_process(units: int) -> list[Record]:
    variant = Variant(name="hashing", case={"work": "hashing"}, work=partial(work, units))
    return [timing.record() for timing in time_rounds([variant], devices=[], rule=RULE)]


def be_busy() -> None:
    """A neighbour that takes a core for some milliseconds, then rests as long."""
    draw = random.Random(0)
    while True:
        pause = draw.uniform(0.005, 0.05)
        end = time.monotonic() + pause
        while time.monotonic() < end:
            pass
        time.sleep(pause)


def platform(folder: Path, units: int, num_processes: int) -> Path:
    """Measured as the workflow measures: process after process, everything of one platform before the next."""
    runs = []
    context = multiprocessing.get_context("forkserver")  # fresh processes, without importing everything each time
    context.set_forkserver_preload(["scalecard.measuring.rounds"])
    for _ in range(num_processes):
        with ProcessPoolExecutor(1, context) as fresh:
            runs.append(fresh.submit(work_in_a_fresh_process, units).result())
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    result = Result(
        experiment="async_timing",
        platform=folder.name,
        spec={},
        environment=environment(probe()),
        started=now,
        finished=now,
        warnings=[],
        records=merged(runs),
    )
    save(result, folder / "async_timing.json")
    return folder


def compare(a: Path, b: Path) -> dict[str, Any]:
    """The command line's row."""
    command = [sys.executable, "-m", "scalecard", "compare", str(a), str(b), "--json"]
    row: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["rows"][0]
    return row


def main() -> int:
    """Repeat, count, and say whether both promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--processes", type=int, default=21)
    args = parser.parse_args()
    found: dict[str, Counter[str]] = defaultdict(Counter)
    multiprocessing.get_context("spawn").Process(target=be_busy, daemon=True).start()
    for repetition in range(1, args.repetitions + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            first = platform(folder / "first", UNITS, args.processes)
            again = platform(folder / "again", UNITS, args.processes)
            planted = platform(folder / "planted", UNITS * 105 // 100, args.processes)
            rows = {"equal work": compare(first, again), "5 % more work": compare(first, planted)}
        for pair, row in rows.items():
            found[pair][row["verdict"]] += 1
            low, high = row["interval"]
            print(
                f"{repetition:3} {pair:14} {row['ratio']:.3f} ({low:.3f} to {high:.3f})  {row['verdict']}", flush=True
            )
    for pair, counts in found.items():
        print(f"{pair:14} {dict(counts)}")
    wrong = found["equal work"]["faster"] + found["equal work"]["slower"]
    seen = found["5 % more work"]["slower"]
    print(f"false verdicts {wrong} (promised 0), slowdowns found {seen} of {args.repetitions} (promised 95 %)")
    return 0 if wrong == 0 and seen >= 0.95 * args.repetitions else 1


if __name__ == "__main__":
    sys.exit(main())
