"""What a pipeline would take if launching and waiting cost nothing: its schedule, played with its stages' own times.

Of each stage the forwards of a batch are timed alone, then its forwards and backwards, and its update; where there is
something to copy, also the activations' way to the next stage. All in the pipelines' own rounds: each round is played
by itself, so that drift of the machine does not come between what is played and what is measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from scalecard.hardware.devices import Device
from scalecard.hardware.links import Link
from scalecard.measuring.timing import Timing
from scalecard.measuring.variant import Subject, Variant
from scalecard.parts import links, stages
from scalecard.records.record import Case, Record
from scalecard.records.telemetry import Telemetry
from scalecard.training.play import Played, played
from scalecard.training.resnet50 import Workload, activations
from scalecard.training.schedules import SCHEDULES, Schedule

FORWARD, BOTH, UPDATE, COPY = "forward", "forward and backward", "update", "copy to the next stage"


def alone(
    load: Workload, small: Workload, devices: Sequence[Device], sizes: Sequence[int], case: Case
) -> list[Variant]:
    """What is played, at each of these split sizes, which divide the batch."""
    check = small.cut(load.cuts)
    found = []
    for stage, device in enumerate(devices[: load.num_stages]):
        own: Case = {"stage": stage, "batch_size": load.batch_size, **case}
        found.append(_variant({**own, "part": UPDATE}, partial(stages.update, stage, device), [], load))
        for size in sizes:
            micro, num_micro, at = replace(load, batch_size=size), load.batch_size // size, {"split_size": size}
            work = {FORWARD: stages.forwards, BOTH: stages.gradients}
            for part, subject in work.items():
                build = partial(subject, stage, device, num_micro=num_micro)
                found.append(_variant({**own, **at, "part": part}, build, [check], micro))
            if stage < load.num_stages - 1 and device.torch.type == "cuda":
                link, crossing = Link(device, devices[stage + 1]), activations(micro)[stage + 1].nbytes
                copy = partial(links.subject, link, load.seed)
                found.append(_variant({**own, **at, "part": COPY}, copy, [], crossing))
    return found


def _variant(case: Case, build: Callable[[Any], Subject], proven_at: Sequence[Any], timed_at: Any) -> Variant:
    name = " ".join(f"{axis} {value}" for axis, value in case.items())
    return Variant(name=name, case=case, build=build, proven_at=proven_at, timed_at=timed_at)


def records(timings: Sequence[Timing], load: Workload, sizes: Sequence[int], case: Case) -> Iterator[Record]:
    """`played_time` and `played_bubble` (the share of it in which devices idle) of every schedule at every split size.

    One sample per round, from the times that `alone` had in it.
    """
    found = {tuple(timing.variant.case.items()): timing for timing in timings}
    for size in sizes:
        parts = [_of_stage(found, load, stage, size, case) for stage in range(load.num_stages)]
        for name, schedule in SCHEDULES.items():
            own: Case = {"implementation": name, "split_size": size, "batch_size": load.batch_size, **case}
            missing = next((t.record() for part in parts for t in part.values() if not t.completion), None)
            if missing:
                yield replace(missing, case=own, metric="played_time")
                continue
            rounds = [_play(schedule, parts, load.batch_size // size, number) for number in _rounds(parts)]
            computed = [Telemetry(rounds_id=parts[0][BOTH].rounds_id, no_joules="computed, not measured")]
            of = partial(Record, case=own, telemetry=computed)
            yield of(metric="played_time", unit="s", samples=[[one.makespan for one in rounds]])
            yield of(metric="played_bubble", unit="fraction", samples=[[one.bubble for one in rounds]])


def _of_stage(
    found: Mapping[tuple[Any, ...], Timing], load: Workload, stage: int, size: int, case: Case
) -> dict[str, Timing]:
    """The timings of a stage's parts; where nothing is copied, there is none of the copy."""
    own: Case = {"stage": stage, "batch_size": load.batch_size, **case}
    cases = {part: {**own, "split_size": size, "part": part} for part in (FORWARD, BOTH, COPY)}
    keys = {part: tuple(one.items()) for part, one in {**cases, UPDATE: {**own, "part": UPDATE}}.items()}
    return {part: found[key] for part, key in keys.items() if key in found}


def _rounds(parts: Sequence[Mapping[str, Timing]]) -> range:
    return range(len(parts[0][BOTH].completion))


def _play(schedule: Schedule, parts: Sequence[Mapping[str, Timing]], num_micro: int, number: int) -> Played:
    """One round, played; a stage's backward is what its forwards and backwards take more than its forwards."""

    def seconds(part: str) -> list[float]:
        return [stage[part].completion[number] if part in stage else 0.0 for stage in parts]

    forward, both = ([value / num_micro for value in seconds(part)] for part in (FORWARD, BOTH))
    backward = [max(0.0, b - f) for f, b in zip(forward, both, strict=True)]
    return played(schedule, forward, backward, seconds(COPY)[:-1], num_micro, seconds(UPDATE))
