"""Does `compare` cry wolf, and does it see a wolf? The same work as two platforms, and more work as a third.

Another process keeps a core busy half of the time. The work is hashing, which takes the same time in every process
where nothing disturbs it; fresh processes multiplying small matrices differ by several per cent by themselves.

Of many cases, every tenth does 5 % more work on the third platform and every tenth 3 %; a single one does 5 % more.
Every process times all cases. Every verdict is counted twice: of the case alone, as if it were the only one, and among
all cases.

A machine that others use drifts between two platforms, and such a difference is no false verdict of `compare`. With
--shuffled, the processes of the three platforms take turns in random order. With --drawn 9, platforms of nine are also
drawn, without replacement, from the processes of all repetitions. Both have real samples, and no drift to judge. With
--simulated 0.01, nothing is measured: fresh processes differ by a standard deviation of 1 % in the median case, half
of its variance shared by the cases of a process; it is twice as large in one case of six, half as large in another.

Result      a line a repetition, then how often each verdict fell; exit status 1 if a promise is not kept
Reproduce   PYTHONPATH=workflow/src python tests/benchmarks/aa.py        (about 15 minutes)
            With --cases 100 --processes 3 --shuffled it took 31 minutes on two cores that others used more than fully.
"""

import argparse
import hashlib
import math
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from statistics import NormalDist
from typing import Any

from scalecard.analysis.compare import Row
from scalecard.analysis.compare import compare as compare_results
from scalecard.hardware.environment import environment
from scalecard.hardware.machine import probe
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.stopping_rule import Rule
from scalecard.records.journal import merged
from scalecard.records.record import Check, Record, Result

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
RULE_FOR_MANY = replace(RULE, warmup_seconds=0.002, block_seconds=0.001, min_rounds=9, max_rounds=9)
ALGORITHMS = ("sha256", "sha1", "blake2b", "md5")
DRAW = random.Random(0)
PLANTED = {0: 5, 1: 3}  # per cent more work, by the last digit of a case's number
DATA = memoryview(bytes(8_000_000))  # made once: asking the system for memory is what varies most

Process = list[Record]  # what one fresh process measured


def size_in_bytes(number: int, num_cases: int) -> int:
    return 4_000_000 if num_cases == 1 else 100_000 + 4_000 * (number % 100)


def work(algorithm: str, size: int) -> None:
    hashlib.new(algorithm, DATA[:size]).digest()


def variant(number: int, num_cases: int, percent: int) -> Variant:
    """The only place that knows how a variant is made."""
    algorithm = ALGORITHMS[number // 10 % len(ALGORITHMS)]
    size = size_in_bytes(number, num_cases) * (100 + percent) // 100

    def prove() -> list[Check]:
        """A digest of all the bytes, in pieces, must be that of the call that is timed."""
        pieces = hashlib.new(algorithm)
        for start in range(0, size, 2**16):
            pieces.update(DATA[start : min(size, start + 2**16)])
        difference = float(pieces.digest() != work(algorithm, size))
        return [Check(name="digest of all the bytes", dtype="uint8", difference=difference, tolerance=0.0)]

    build = partial(_subject, partial(work, algorithm, size), prove)
    return Variant(name=f"case {number}", case={"number": number}, build=build)


def _subject(call: Callable[[], object], prove: Callable[[], list[Check]], _at: None) -> Subject:
    return Subject(work=call, prove=prove)


def work_in_a_fresh_process(num_cases: int, planted: bool) -> Process:
    variants = [variant(i, num_cases, PLANTED.get(i % 10, 0) if planted else 0) for i in range(num_cases)]
    rule = RULE if num_cases == 1 else RULE_FOR_MANY
    return [timing.record() for timing in time_rounds(variants, devices=[], rule=rule)]


def be_busy() -> None:
    """A neighbour that takes a core for some milliseconds, then rests as long."""
    draw = random.Random(0)
    while True:
        pause = draw.uniform(0.005, 0.05)
        end = time.monotonic() + pause
        while time.monotonic() < end:
            pass
        time.sleep(pause)


def simulated_process(num_cases: int, planted: bool, spread: float) -> Process:
    """What --simulated says; samples of one process scatter by a quarter of that."""
    shared, records = DRAW.gauss(0, math.sqrt(0.5)), []
    for number in range(num_cases):
        own = spread * math.exp(math.log(2) * NormalDist().inv_cdf((number * 0.618034 + 0.5) % 1))
        centre = math.log1p((PLANTED.get(number % 10, 0) if planted else 0) / 100)
        centre += own * (shared + DRAW.gauss(0, math.sqrt(0.5)))
        samples = [math.exp(DRAW.gauss(centre, own / 4)) for _ in range(RULE_FOR_MANY.max_rounds)]
        records.append(Record(case={"number": number}, metric="time", unit="s", samples=[samples]))
    return records


def measure(args: argparse.Namespace, planted: bool) -> Process:
    """One fresh process."""
    if args.simulated:
        return simulated_process(args.cases, planted, args.simulated)
    context = multiprocessing.get_context("forkserver")  # fresh processes, without importing everything each time
    context.set_forkserver_preload(["scalecard.measuring.interleaved_timing"])
    with ProcessPoolExecutor(1, context) as fresh:
        return fresh.submit(work_in_a_fresh_process, args.cases, planted).result()


def three_platforms(args: argparse.Namespace) -> list[list[Process]]:
    """As the workflow measures: process after process, everything of one platform before the next, if not shuffled."""
    order = [number for number in range(3) for _ in range(args.processes)]
    if args.shuffled:
        DRAW.shuffle(order)
    found: list[list[Process]] = [[], [], []]
    for number in order:
        found[number].append(measure(args, planted=number == 2))
    return found


@cache
def this_environment() -> dict[str, Any]:
    return environment(probe())


def platform(name: str, processes: Sequence[Process]) -> Result:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Result(
        experiment="async_timing",
        platform=name,
        spec={},
        environment=this_environment(),
        started=now,
        finished=now,
        warnings=[],
        records=merged(processes),
    )


def judged(a: Sequence[Process], b: Sequence[Process], *, planted: bool) -> Counter[str]:
    """How often each kind of verdict fell: of cases alone and among all, of those that did and did not change."""
    rows = compare_results([platform("a", a)], [platform("b", b)]).rows
    return Counter(name for row in rows for name in _outcomes(row, planted))


def _outcomes(row: Row, planted: bool) -> Iterator[str]:
    percent = PLANTED.get(int(str(row.case["number"])[-1]), 0) if planted else 0
    for how, verdict in (("alone", row.alone), ("among all", row.verdict)):
        if verdict == "faster" or (verdict == "slower" and not percent):
            yield f"false {how}"
        elif verdict == "slower":
            yield f"{percent} % found {how}"


def report(processes: int, equal: Sequence[Counter[str]], planted: Sequence[Counter[str]], num_cases: int) -> None:
    """One line per kind of verdict."""
    runs = len(equal)
    for how in ("alone", "among all"):
        found = [
            f"{percent} % found {sum(c[f'{percent} % found {how}'] for c in planted)} of"
            f" {runs * sum(i % 10 == digit for i in range(num_cases))}"
            for digit, percent in PLANTED.items()
            if digit < num_cases
        ]
        wrong = [counts[f"false {how}"] for counts in equal]
        print(
            f"{processes:3} processes, verdicts {how + ':':10} runs of equal work with a false verdict"
            f" {sum(map(bool, wrong))} of {runs} ({sum(wrong)} verdicts); {', '.join(found)};"
            f" false beside them {sum(counts[f'false {how}'] for counts in planted)}",
            flush=True,
        )


def drawn(count: int, repetitions: int, equal: list[Process], more: list[Process]) -> Iterable[list[Counter[str]]]:
    """Per repetition the verdicts of equal and of planted work, on platforms drawn from all measured processes."""
    for _ in range(repetitions):
        picked = DRAW.sample(equal, 2 * count)
        a, b, c = picked[:count], picked[count:], DRAW.sample(more, count)
        yield [judged(a, b, planted=False), judged(a, c, planted=True)]


def measured(args: argparse.Namespace, equal: list[Process], more: list[Process]) -> Iterable[list[Counter[str]]]:
    """The same on platforms measured one after the other, which are added to `equal` and `more`."""
    for repetition in range(1, args.repetitions + 1):
        first, again, planted = three_platforms(args)
        found = [judged(first, again, planted=False), judged(first, planted, planted=True)]
        print(f"{repetition:3} equal work {dict(found[0])}, planted {dict(found[1])}", flush=True)
        equal += first + again
        more += planted
        yield found


def main() -> int:
    """Repeat, count, and say whether the promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--processes", type=int, default=21)
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--drawn", type=int, nargs="*", default=[], help="also platforms of so many processes")
    parser.add_argument("--shuffled", action="store_true", help="the platforms' processes take turns, in random order")
    parser.add_argument("--simulated", type=float, help="measure nothing: spread between processes, e.g. 0.01")
    args = parser.parse_args()
    if not args.simulated:
        multiprocessing.get_context("spawn").Process(target=be_busy, daemon=True).start()
    pool: tuple[list[Process], list[Process]] = ([], [])
    equal, planted = zip(*measured(args, *pool), strict=True)
    report(args.processes, equal, planted, args.cases)
    for count in args.drawn:
        report(count, *zip(*drawn(count, args.repetitions, *pool), strict=True), args.cases)
    wrong = sum(bool(counts["false among all"]) for counts in equal)
    seen = sum(counts["5 % found among all"] for counts in planted)
    if args.cases == 1:
        print(f"false verdicts {wrong} (promised 0), slowdowns found {seen} of {args.repetitions} (promised 95 %)")
        return int(wrong > 0 or seen < 0.95 * args.repetitions)
    print(f"runs with a false verdict {wrong} of {args.repetitions} (promised 5 %)")
    return int(wrong > 0.05 * args.repetitions)


if __name__ == "__main__":
    sys.exit(main())
