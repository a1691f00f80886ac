"""Runs mutants side by side, each in a copy of the project of its own, and counts what catches them."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from entries import Mutant
from sandbox import OutOfTime, Sandbox

PROOF, TESTS, NEITHER, UNFINISHED = "caught by proof", "caught by tests", "caught by neither", "not finished"
LONGEST = 900.0  # seconds of a proof or of the tests, before they count as hung; a quiet machine needs a tenth


@dataclass(frozen=True)
class Verdict:
    """What caught a mutant, how, and after how many seconds."""

    mutant: Mutant
    caught: str
    how: str
    seconds: float

    @property
    def line(self) -> str:
        how = f" ({self.how})" if self.how else ""
        return f"{self.caught:17} {self.seconds:5.0f} s  {self.mutant.file}: {self.mutant.wrong}{how}"


class Campaign:
    """Copies of the project, one per job.

    With `room_only` only the tests of the mutant's room are run. With `until`, a time of the monotonic clock, what is
    not finished by then is said to be so, and a test that fails is believed at once.
    """

    def __init__(self, folder: Path, jobs: int, *, room_only: bool = False, until: float | None = None) -> None:
        self._free: SimpleQueue[Sandbox] = SimpleQueue()
        self._jobs, self._room_only, self.until = jobs, room_only, until
        with ThreadPoolExecutor(jobs) as pool:
            self._sandboxes = list(pool.map(lambda number: Sandbox(folder / str(number)), range(jobs)))
        for sandbox in self._sandboxes:
            self._free.put(sandbox)
        self._confirm = until is None
        self._proof_seconds: dict[str, float] = {}

    def baseline(self, experiments: Iterable[str]) -> list[str]:
        """The experiments that fail without a mutant: their proofs would say nothing about one."""
        names = sorted(set(experiments))
        with ThreadPoolExecutor(self._jobs) as pool:
            found = dict(zip(names, pool.map(self._baseline, names), strict=True))
        return [f"{name} {problem}" for name, problem in found.items() if problem]

    def verdicts(self, mutants: Sequence[Mutant]) -> Iterator[Verdict]:
        """The verdict on each mutant, as they come."""
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                for future in as_completed([pool.submit(self._judge, mutant) for mutant in mutants]):
                    yield future.result()
            except BaseException:  # e.g. Ctrl-C: nothing goes on, and nobody waits for it
                pool.shutdown(wait=False, cancel_futures=True)
                for sandbox in self._sandboxes:
                    sandbox.stop()
                raise

    @contextmanager
    def _sandbox(self) -> Iterator[Sandbox]:
        sandbox = self._free.get()
        try:
            yield sandbox
        finally:
            self._free.put(sandbox)

    def _baseline(self, experiment: str) -> str:
        started = time.monotonic()
        with self._sandbox() as sandbox:
            try:
                done = sandbox.prove(experiment, LONGEST)
            except OutOfTime:
                return "hangs"
        self._proof_seconds[experiment] = time.monotonic() - started
        problem = f"fails: {done.last_line}" if done.status else ""
        print(f"without a mutant {experiment} {problem or 'passes'}", flush=True)
        return problem

    def _left(self) -> float:
        """The seconds that are left."""
        return self.until - time.monotonic() if self.until else float("inf")

    def _judge(self, mutant: Mutant) -> Verdict:
        started = time.monotonic()
        if self._left() <= 0:
            return Verdict(mutant, UNFINISHED, "the time was over before it began", 0)
        with self._sandbox() as sandbox, sandbox.holding(mutant):
            first, then = (self._tests, self._proof) if mutant.tests_first else (self._proof, self._tests)
            caught, how = first(sandbox, mutant)
            if caught == NEITHER:
                caught, how = then(sandbox, mutant)
        return Verdict(mutant, caught, how, time.monotonic() - started)

    def _proof(self, sandbox: Sandbox, mutant: Mutant) -> tuple[str, str]:
        for experiment in mutant.experiments:
            usual = self._proof_seconds.get(experiment)
            longest = min(LONGEST, 60 + 4 * usual) if usual else LONGEST
            try:
                done = sandbox.prove(experiment, max(0.1, min(longest, self._left())))
            except OutOfTime:
                return self._late(PROOF, experiment)
            if done.status:
                return PROOF, f"{experiment}: {done.last_line}"
        return NEITHER, ""

    def _tests(self, sandbox: Sandbox, mutant: Mutant) -> tuple[str, str]:
        *room, others = sandbox.test_files(mutant)
        for files in filter(None, room if self._room_only and any(room) else [*room, others]):
            try:
                failed = sandbox.failing_test(files, max(0.1, min(LONGEST, self._left())), confirm=self._confirm)
            except OutOfTime:
                return self._late(TESTS, "the tests")
            if failed:
                return TESTS, failed
        return NEITHER, ""

    def _late(self, caught: str, what: str) -> tuple[str, str]:
        """A mutant that hangs is caught, unless it was our own time that was over."""
        return (UNFINISHED, f"the time was over during {what}") if self._left() <= 0 else (caught, f"{what} hung")


def share(verdicts: Sequence[Verdict]) -> float:
    """The share of the finished ones that was caught; 1 if there are none."""
    count = Counter(verdict.caught for verdict in verdicts)
    finished = len(verdicts) - count[UNFINISHED]
    return (count[PROOF] + count[TESTS]) / finished if finished else 1.0


def totals(what: str, verdicts: Sequence[Verdict], goal: float) -> str:
    """One line: how many were caught by what, and the goal."""
    count = Counter(verdict.caught for verdict in verdicts)
    finished = len(verdicts) - count[UNFINISHED]
    parts = ", ".join(f"{count[kind]} {kind.removeprefix('caught ')}" for kind in (PROOF, TESTS, NEITHER))
    late = f"; {count[UNFINISHED]} not finished, the time was over" if count[UNFINISHED] else ""
    caught = count[PROOF] + count[TESTS]
    return f"{what}: {caught} of {finished} caught, {share(verdicts):.1%} (goal {goal:.0%}): {parts}{late}"
