"""Signals to the whole process group at random moments: each start after one is the test of the one before."""

import os
import random
import signal
import subprocess
import time
from collections import Counter

from workplace import Unexpected, Workplace, ended

GRACE = 90.0  # seconds that a run gets to end after SIGTERM or SIGINT


def campaign(place: Workplace, counts: dict[str, int], seed: int) -> str:
    """What happened, in a line. Unexpected if something was lost, left, or needed a hand."""
    place.complete()
    began = time.monotonic()
    place.complete(*place.again())
    duration = time.monotonic() - began
    chance = random.Random(seed)
    wanted = [name for name, count in counts.items() for _ in range(count)]
    chance.shuffle(wanted)
    told, phases, starts = Counter[str](), Counter[str](), 0
    while wanted:
        starts += 1
        if starts > 3 * sum(counts.values()) + 10:
            raise Unexpected("most runs end before their signal")
        name, moment = wanted[-1], chance.uniform(0, duration)
        if not _disturbed(place, name, moment):
            continue
        wanted.pop()
        told[name] += 1
        phases[_phase(place.said())] += 1
        print(f"  {name} after {moment:5.1f} s of about {duration:.0f}: {_phase(place.said())}", flush=True)
    place.complete()
    place.complete()  # nothing to do, but it clears what the run before it was too early for
    if left := place.left():
        raise Unexpected(f"left: {', '.join(left)}")
    sent = ", ".join(f"{count} {name}" for name, count in told.items())
    return f"{sent}: nothing lost, no hand needed, nothing left; they came {_counted(phases)}"


def _disturbed(place: Workplace, name: str, moment: float) -> bool:
    """One run and its signal; False if the run ended well before."""
    before, groups = place.results(), place.kept()
    running = place.start(*place.again())
    with ended(running):
        try:
            status = running.wait(moment)
        except subprocess.TimeoutExpired:
            status = None
        if status == 0:
            return False
        if status is not None:
            raise Unexpected(f"the start after a signal needs a hand: {place.said()[-1500:]}")
        os.killpg(running.pid, signal.Signals[name])
        try:
            running.wait(GRACE)
        except subprocess.TimeoutExpired as error:
            raise Unexpected(f"{name} does not end the run within {GRACE:.0f} s") from error
    if survivors := place.survivors():
        raise Unexpected(f"{name}: survived: {', '.join(survivors)}")
    if lost := set(before) - set(place.results()):
        raise Unexpected(f"{name}: lost {', '.join(sorted(lost))}")
    after, results = place.kept(), place.results()
    for path, lines in groups.items():
        done = results.get(f"{path.parent.name}.json") != before.get(f"{path.parent.name}.json")
        if not done and after.get(path, [])[: len(lines)] != lines:
            raise Unexpected(f"{name}: lost groups of {path}")
    return True


def _phase(said: str) -> str:
    """How far the run was: the last of these signs in what it said."""
    signs = {"Building DAG": "while starting", " of ": "while measuring", "draw the figure": "while drawing"}
    found = {where: said.rfind(sign) for sign, where in signs.items()}
    return max(found, key=lambda where: found[where]) if max(found.values()) >= 0 else "before anything was said"


def _counted(phases: "Counter[str]") -> str:
    return ", ".join(f"{phase} ({count})" for phase, count in phases.most_common())
