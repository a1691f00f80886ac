"""The tables behind the advice: a row per workload, per strategy and number of devices, per batch, and per setting."""

from scalecard.analysis import formatting
from scalecard.analysis.default_settings import Change
from scalecard.analysis.strategy_choice import (
    TOO_LARGE,
    Choice,
    Place,
    avoid,
    batches,
    choose,
    fewest,
    places,
    workloads,
)
from scalecard.records.record import Result
from scalecard.records.statistics import Ratio
from scalecard.report import strategy_table
from scalecard.report.table import EMPTY, Cell, Table

Row = dict[str, str | Cell]
VERDICTS = {"faster": "faster", "slower": "slower", "same": "the same", "unclear": "cannot be told apart"}


def summary(result: Result) -> Table:
    """Per workload: whether one device does, what to use, and what comes second."""
    note = (
        "Use: the highest rate with one device's batch shared by all. Gain: its rate over one device's. By: the"
        " runner-up's time over it. Collapses at: samples per device at which each device surely does less than half"
        " of what one alone does with its whole batch. Avoid: slower than one device, or less than half as fast as the"
        " best one on as many devices."
    )
    return Table.of("What to use", [_of_workload(result, name) for name in workloads(result)], note)


def _of_workload(result: Result, workload: str) -> Row:
    found = places(result, workload)
    choice, least = choose(found, "strong"), fewest(found)
    runner_up = choice.runner_up if choice else None
    down = batches(result, workload, found).collapse
    return {
        "Workload": workload,
        "One device": _one_device(choice, found),
        "Fewest devices": Cell(str(least[0].devices), least[0].devices) if least else "none",
        "Use": Cell(choice.best.where, choice.best.devices) if choice else "",
        "Gain": _ratio(choice.best.gain if choice and choice.best.devices > 1 else None),
        "Runner-up": runner_up[0].where if runner_up else "",
        "By": _ratio(runner_up[1] if runner_up else None),
        "Collapses at": Cell(f"{down.batch:g} ({down.what})", down.batch) if down else "",
        "Avoid": ", ".join(dict.fromkeys(place.strategy for place, _ in avoid(found))),
    }


def _one_device(choice: Choice | None, found: list[Place]) -> str:
    """The textbook's three cases."""
    alone = [place for place in found if place.devices == 1]
    if any(place.fits for place in alone):
        return "fits, but slow" if choice and choice.helps else "fits"
    return alone[0].status if alone else ""


def everything(result: Result) -> Table:
    """Every strategy on every number of devices, also where it does not fit."""
    note = (
        "Efficiency: the rate over that of as many devices that each work as fast as one alone. Memory: of the device"
        " that needs the most."
    )
    rows = []
    for name in workloads(result):
        found = places(result, name)
        decisions = _decisions(found)
        order = sorted(found, key=lambda p: (p.devices, p.nodes, p.scaling, -p.rate if p.fits else 0.0, p.strategy))
        rows += [_of_run(result, place, decisions.get(id(place), "")) for place in order]
    return Table.of("Every strategy, by devices", rows, note)


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


def _of_run(result: Result, place: Place, decision: str) -> Row:
    why = "" if place.fits else f": {place.step.note if place.status == TOO_LARGE else place.step.why}"
    efficiency = place.efficiency if place.devices > 1 else None
    return {
        "Workload": place.workload,
        "Strategy": place.strategy,
        "Devices": strategy_table.devices_cell(place.devices, place.nodes),
        "Scaling": place.scaling if place.devices > 1 else "",
        "Fits": f"{place.status}{why}",
        "Rate": Cell(f"{formatting.count(place.rate)} {place.unit}/s", place.rate) if place.fits else "",
        "Efficiency": Cell(formatting.share(efficiency), efficiency.value) if efficiency else "",
        "Memory": strategy_table.memory(result, place.step),
        "Energy": strategy_table.energy(place.step) if place.fits else "",
        "Decision": decision,
    }


def by_batch(result: Result) -> Table:
    """The share of its full rate at which a device works, by the samples that it has."""
    found = {name: batches(result, name, places(result, name)) for name in workloads(result)}
    rows: list[Row] = [
        {
            "Workload": name,
            "Samples per device": Cell(f"{point.batch:g}", point.batch),
            "Where": point.what,
            "Share of the full rate": Cell(formatting.share(point.share), point.share.value),
            "Verdict": "collapsed" if point.collapsed else "holds" if point.holds else "unclear",
        }
        for name, own in found.items()
        for point in (*own.shared, *own.alone)
    ]
    note = (
        "Share: of the rate of one device with its whole batch; of several devices, the efficiency. Collapsed: the"
        " whole interval is below half. One device alone, with no one to exchange gradients with, is the most that any"
        " network allows."
    )
    return Table.of("Samples on each device", rows, note)


def defaults(found: list[Change]) -> Table:
    """Every other setting, with its time over the default's."""
    rows: list[Row] = [
        {
            "Of": change.what,
            "Setting": change.setting,
            "Instead of": change.instead,
            "Time": _ratio(change.ratio),
            "Verdict": VERDICTS[change.ratio.verdict],
            "But": change.but,
        }
        for change in sorted(found, key=lambda one: (one.what, one.ratio.value))
    ]
    return Table.of("Other settings than the defaults", rows, "Time: over the default's, per batch.")


def told(sentences: list[str]) -> Table:
    """Advice that the numbers would give if the devices were real."""
    note = "What real devices with these times would be told, in three sentences per workload at most."
    return Table.of("What would be advised", [{"Sentence": each} for each in sentences], note)


def _ratio(ratio: Ratio | None) -> Cell:
    return Cell(formatting.factor(ratio), ratio.value) if ratio else EMPTY
