"""The tables behind the advice: a row per workload, per strategy and number of devices, per batch, and per setting."""

from scalecard.analysis import formatting, ratio_text
from scalecard.analysis.advice.choice import Choice, avoid, choose
from scalecard.analysis.advice.defaults import Change
from scalecard.analysis.advice.strategy_runs import TOO_LARGE, Place, Point, batches, fewest, places, workloads
from scalecard.records.record import Result
from scalecard.records.statistics import Ratio
from scalecard.report import strategy_table
from scalecard.report.strategy_table import Table

Cell = tuple[str, float]
SLOW = "fits, but slow"
VERDICTS = {"faster": "faster", "slower": "slower", "same": "the same", "unclear": "cannot be told apart"}


def summary(result: Result, *, trial: bool) -> Table:
    """Per workload: whether one device does, what to use, and what comes second."""
    head = ["Workload", "One device", "Fewest devices", "Use", "Gain", "Runner-up", "By", "Collapses at", "Avoid"]
    rows = [_of_workload(result, name) for name in workloads(result)]
    note = (
        "Use: the highest rate with one device's batch shared by all. Gain: its rate over one device's. By: the"
        " runner-up's time over it. Collapses at: samples per device at which each device surely does less than half"
        " of what one alone does with its whole batch. Avoid: slower than one device, or less than half as fast as the"
        " best one on as many devices."
    )
    return Table("What to use", head, rows, note, trial)


def _of_workload(result: Result, workload: str) -> list[Cell]:
    found = places(result, workload)
    choice, least = choose(found, "strong"), fewest(found)
    runner_up = choice.runner_up if choice else None
    down = batches(result, workload, found).collapse
    return [
        (workload, 0.0),
        (_one_device(choice, found), 0.0),
        (str(least[0].devices), least[0].devices) if least else ("none", 0.0),
        (choice.best.where, choice.best.devices) if choice else ("", 0.0),
        _ratio(choice.best.gain if choice and choice.best.devices > 1 else None),
        (runner_up[0].where, 0.0) if runner_up else ("", 0.0),
        _ratio(runner_up[1] if runner_up else None),
        (f"{down.batch:g} ({down.what})", down.batch) if down else ("", 0.0),
        (", ".join(dict.fromkeys(place.strategy for place, _ in avoid(found))), 0.0),
    ]


def _one_device(choice: Choice | None, found: list[Place]) -> str:
    """The textbook's three cases."""
    alone = [place for place in found if place.devices == 1]
    if any(place.fits for place in alone):
        return SLOW if choice and choice.helps else "fits"
    return alone[0].status if alone else ""


def everything(result: Result, *, trial: bool) -> Table:
    """Every strategy on every number of devices, also where it does not fit."""
    rows = [row for name in workloads(result) for row in _decided(result, name)]
    head = ["Workload", "Strategy", "Devices", "Scaling", "Fits", "Rate", "Efficiency", "Memory", "Energy", "Decision"]
    note = (
        "Efficiency: the rate over that of as many devices that each work as fast as one alone. Memory: of the device"
        " that needs the most."
    )
    return Table("Every strategy, by devices", head, rows, note, trial)


def _decided(result: Result, workload: str) -> list[list[Cell]]:
    found = places(result, workload)
    decisions = _decisions(found)
    order = sorted(found, key=lambda p: (p.devices, p.nodes, p.scaling, -p.rate if p.fits else 0.0, p.strategy))
    return [_row(result, place, decisions.get(id(place), "")) for place in order]


def _decisions(found: list[Place]) -> dict[int, str]:
    said = {id(place): f"avoid: {why}" for place, why in avoid(found)}
    for scaling, what in (("weak", ", if the batch grows"), ("strong", "")):
        choice = choose([p for p in found if p.devices > 1], scaling) if what else choose(found, scaling)
        if choice:
            said |= {id(place): f"not told apart from it{what}" for place in choice.tied}
            if choice.runner_up:
                said[id(choice.runner_up[0])] = f"runner-up{what}" + (
                    ", not told apart" if choice.runner_up[0] in choice.tied else ""
                )
            said[id(choice.best)] = f"recommended{what}"
    return said


def _row(result: Result, place: Place, decision: str) -> list[Cell]:
    rate = (f"{formatting.count(place.rate)} {place.unit}/s", place.rate) if place.fits else ("", 0.0)
    why = "" if place.fits else f": {place.step.note if place.status == TOO_LARGE else place.step.why}"
    return [
        (place.workload, 0.0),
        (place.strategy, 0.0),
        (f"{place.devices}{f' on {place.nodes} nodes' if place.nodes > 1 else ''}", place.devices),
        (place.scaling if place.devices > 1 else "", 0.0),
        (f"{place.status}{why}", 0.0),
        rate,
        (ratio_text.share(place.efficiency), place.efficiency.value)
        if place.efficiency and place.devices > 1
        else ("", 0.0),
        strategy_table.memory(result, place.step),
        strategy_table.energy(place.step) if place.fits else ("", 0.0),
        (decision, 0.0),
    ]


def by_batch(result: Result, *, trial: bool) -> Table:
    """The share of its full rate at which a device works, by the samples that it has."""
    rows = []
    for name in workloads(result):
        found = batches(result, name, places(result, name))
        rows += [_point(name, point) for point in (*found.shared, *found.alone)]
    note = (
        "Share: of the rate of one device with its whole batch; of several devices, the efficiency. Collapsed: the"
        " whole interval is below half. One device alone, with no one to exchange gradients with, is the most that any"
        " network allows."
    )
    head = ["Workload", "Samples per device", "Where", "Share of the full rate", "Verdict"]
    return Table("Samples on each device", head, rows, note, trial)


def _point(workload: str, point: Point) -> list[Cell]:
    verdict = "collapsed" if point.collapsed else "holds" if point.holds else "unclear"
    return [
        (workload, 0.0),
        (f"{point.batch:g}", point.batch),
        (point.what, 0.0),
        (ratio_text.share(point.share), point.share.value),
        (verdict, 0.0),
    ]


def defaults(found: list[Change], *, trial: bool) -> Table:
    """Every other setting, with its time over the default's."""
    rows: list[list[Cell]] = [
        [
            (change.what, 0.0),
            (change.setting, 0.0),
            (change.instead, 0.0),
            _ratio(change.ratio),
            (VERDICTS[change.ratio.verdict], 0.0),
            (change.but, 0.0),
        ]
        for change in sorted(found, key=lambda one: (one.what, one.ratio.value))
    ]
    head = ["Of", "Setting", "Instead of", "Time", "Verdict", "But"]
    return Table("Other settings than the defaults", head, rows, "Time: over the default's, per batch.", trial)


def told(sentences: list[str]) -> Table:
    """What the numbers would advise if the devices were real."""
    rows: list[list[Cell]] = [[(sentence, 0.0)] for sentence in sentences]
    note = "What real devices with these times would be told, in three sentences per workload at most."
    return Table("What would be advised", ["Sentence"], rows, note, trial=True)


def _ratio(ratio: Ratio | None) -> Cell:
    return (ratio_text.factor(ratio), ratio.value) if ratio else ("", 0.0)
