"""What the stages of a cut model take: beside perfect balance, and played beside what was measured.

Idle is the share of the devices' time in which they do not compute: what every stage takes alone is how long its device
is busy. What a step takes longer than its schedule, played with the stages' own times, has no place in the schedule:
launching, handing over, waiting for one another, and memory that devices share.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from scalecard.analysis import formatting
from scalecard.figures import points
from scalecard.figures.points import Point
from scalecard.records.record import Record, Result, Scalar

CUTS = ("after layer2", "balanced")
REST = "launching, waiting and what devices share"
CLOSE = 0.05  # how much longer than played a step may take where nothing else binds


def cut_name(record: Record) -> str:
    """'after layer2, 2 devices'."""
    return f"{record.case.get('cut', CUTS[0])}, {record.case.get('devices', 2)} devices"


def blocks(record: Record) -> str:
    """' (blocks 0-7 | 8-17)', or '' if they are not known."""
    spans = [range(end - count, end) for end, count in zip(accumulate(record.blocks), record.blocks, strict=True)]
    named = " | ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)
    return f" (blocks {named})" if named else ""


def balance(cut: Record, alone: Sequence[Record], single: Record) -> str:
    """The stages' own times, and what perfect balance would bring: the same work, shared equally."""
    times = [record.median for record in alone]
    shown = ", ".join(map(formatting.seconds, times))
    perfect = sum(times) / len(times)
    return (
        f"Cut {cut_name(cut)}{blocks(cut)}: the stages take {shown} alone, and the slowest one"
        f" {formatting.percent(max(times) / perfect - 1)} more than perfect balance, {formatting.seconds(perfect)}"
        f" each: no pipeline over this cut can be more than {single.median / max(times):.2f}x as fast as one device,"
        f" and with perfect balance {single.median / perfect:.2f}x."
    )


def fastest(records: Iterable[Record], *axes: str) -> list[Record]:
    """Of the records with the same values on these axes, the fastest."""
    found: dict[tuple[Scalar, ...], Record] = {}
    for record in records:
        key = tuple(record.case.get(axis) for axis in axes)
        found[key] = min(found.get(key, record), record, key=lambda one: one.median)
    return list(found.values())


def fastest_pairs(result: Result) -> list[tuple[Record, Record]]:
    """The fastest step of each cut as it was measured, and the same step played."""
    every = [(result.find("step_time", **played.case), played) for played in result.select("played_time")]
    pairs = {id(step): (step, played) for step, played in every if step}
    return [pairs[id(step)] for step in fastest([step for step, _ in pairs.values()], "devices", "cut")]


def points_of(result: Result) -> list[Point]:
    """Measured and played."""
    found = list[Point]()
    for measured, played in fastest_pairs(result):
        label = f"{measured.case['strategy']} {measured.case['split_size']}, {cut_name(measured)}"
        for what, record in (("measured", measured), ("played", played)):
            found.append(points.timed(result, record, series=what, x=label))
    return found


def idle(result: Result, measured: Record) -> float | None:
    """The share of the measured step in which the devices do not compute; None without the stages' own times."""
    case = {axis: measured.case[axis] for axis in ("devices", "cut")}
    both = result.select("stage_time", **case, split_size=measured.case["split_size"], part="forward and backward")
    busy = sum(record.median for record in (*both, *result.select("stage_time", **case, part="update")))
    return max(0.0, 1 - busy / (measured.integer("devices") * measured.median)) if both else None


def rest(result: Result, measured: Record, played: Record) -> str:
    """A step beside its schedule, played: how long devices idle in either, and what the step takes longer."""
    ratio = measured.over(played)
    label = f"{measured.case['strategy']} at split size {measured.case['split_size']}, {cut_name(measured)}"
    bubble, own = result.find("played_bubble", **played.case), idle(result, measured)
    text = f"{label}: {formatting.time(measured)} measured, {formatting.seconds(played.median)} played"
    text += " with its stages' own times"
    if bubble and own is not None:
        text += f"; devices idle {formatting.percent(own)} of the time, {formatting.percent(bubble.median)} if played"
    near = "within" if ratio.value <= 1 + CLOSE else "beyond"
    text += f". That is {formatting.factor(ratio)} the schedule's time, {near} {formatting.percent(CLOSE)} of it"
    if ratio.value <= 1:
        return f"{text}."
    return f"{text}; the rest, {formatting.seconds(max(0.0, measured.median - played.median))}, is {REST}."
