"""Does `compare` cry wolf, and does it see a wolf? The same work as two platforms, and 5 % more work as a third.

Another process keeps a core busy half of the time. Two kinds of work: hashing, which takes the same time in every
process, and small matrix products, whose speed differs by several per cent from process to process, so that only the
absence of false verdicts is promised for them.

Result      a line a comparison, then how often each verdict fell; exit status 1 if a promise is not kept
Reproduce   PYTHONPATH=workflow/src python tests/benchmarks/aa.py        (about 10 minutes)
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

import numpy as np
from scalecard import machine as machines
from scalecard import measure, schema
from scalecard.merge import merged
from scalecard.schema import Record, Result

RULE = measure.Rule(
    warmup_seconds=0.2,
    block_seconds=0.01,
    min_rounds=50,
    max_rounds=50,
    min_seconds=0,
    max_seconds=9,
    precision=0.01,
    processes=1,
)
UNITS = 100  # of work in one call


def hashing(units: int) -> None:
    hashlib.sha256(bytes(units * 40_000)).digest()


def products(units: int) -> None:
    x = np.full((96, 96), 0.5, dtype=np.float32)
    for _ in range(units):
        x @ x


WORKS = {"hashing": hashing, "products": products}


def work_in_a_fresh_process(units: int) -> list[Record]:
    timings = {
        name: measure.rounds({name: partial(work, units)}, devices=[], rule=RULE) for name, work in WORKS.items()
    }
    return [timings[name][name].record({"work": name}) for name in WORKS]


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
    context.set_forkserver_preload(["scalecard.measure", "numpy"])
    for _ in range(num_processes):
        with ProcessPoolExecutor(1, context) as fresh:
            runs.append(fresh.submit(work_in_a_fresh_process, units).result())
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    result = Result(
        experiment="async_timing",
        platform=folder.name,
        spec={},
        environment=machines.environment(machines.probe()),
        started=now,
        finished=now,
        warnings=[],
        records=merged(runs),
    )
    schema.save(result, folder / "async_timing.json")
    return folder


def compare(a: Path, b: Path) -> dict[str, dict[str, Any]]:
    """The command line's row of each work."""
    command = [sys.executable, "-m", "scalecard", "compare", str(a), str(b), "--json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["rows"]
    return {row["case"]["work"]: row for row in rows}


def main() -> int:
    """Repeat, count, and say whether both promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--processes", type=int, default=9)
    args = parser.parse_args()
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    multiprocessing.get_context("spawn").Process(target=be_busy, daemon=True).start()
    for repetition in range(1, args.repetitions + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            first = platform(folder / "first", UNITS, args.processes)
            again = platform(folder / "again", UNITS, args.processes)
            planted = platform(folder / "planted", UNITS * 105 // 100, args.processes)
            pairs = {"equal work": compare(first, again), "5 % more work": compare(first, planted)}
        for pair, rows in pairs.items():
            for work, row in rows.items():
                found[pair, work][row["verdict"]] += 1
                low, high = row["interval"]
                says = f"{row['ratio']:.3f} ({low:.3f} to {high:.3f})  {row['verdict']}"
                print(f"{repetition:3} {pair:14} {work:9} {says}", flush=True)
    for (pair, work), counts in found.items():
        print(f"{pair:14} {work:9} {dict(counts)}")
    wrong = sum(found["equal work", work][verdict] for work in WORKS for verdict in ("faster", "slower"))
    seen = found["5 % more work", "hashing"]["slower"]
    print(f"false verdicts {wrong} (promised 0), slowdowns found {seen} of {args.repetitions} (promised 95 %)")
    return 0 if wrong == 0 and seen >= 0.95 * args.repetitions else 1


if __name__ == "__main__":
    sys.exit(main())
