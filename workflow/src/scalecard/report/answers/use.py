"""Which strategy should train each workload here, on how many devices, and which defaults should change?

Samples or tokens per second over the number of devices, one panel per workload, with the same total batch.
Thick: the fastest strategy, with its 95 % intervals; the next two are grey. Dashed: the fastest one with as many
samples on each device as one has alone. Dotted: as many devices that each work as fast as one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import formatting
from scalecard.analysis.platforms import PlatformResults
from scalecard.analysis.setting_gains import Change, changes
from scalecard.analysis.strategy_choice import (
    TOO_LARGE,
    Choice,
    StrategyRun,
    avoid,
    batches,
    choose,
    fewest,
    recipe_runs,
    strategy_runs,
    timed,
    workloads,
)
from scalecard.figures import charts, layout, points, style
from scalecard.records.record import Result
from scalecard.records.statistics import Ratio
from scalecard.records.strategies import SINGLE
from scalecard.report import advice_text
from scalecard.report.sections import Finding, Topic, strategies
from scalecard.report.table import EMPTY, Cell, Table

Row = dict[str, str | Cell]
VERDICTS = {"faster": "faster", "slower": "slower", "same": "the same", "unclear": "no measurable difference"}

OTHERS = style.PALETTE[7]
MOST = 3  # strategies that are drawn of those with one device's batch
THIN: dict[str, Any] = {"linewidth": 0.9, "markersize": 4}


def plot(measured: PlatformResults) -> Figure:
    """Rates by devices, a panel per workload."""
    result = measured.of("strategies")
    return rates([run for name in workloads(result) for run in strategy_runs(result, name)] if result else [], result)


def rates(found: Sequence[StrategyRun], result: Result | None) -> Figure:
    """The rates of these runs by devices, a panel per workload; they are of the result's platform."""
    names = list(dict.fromkeys(run.workload for run in found))
    figure, panels = layout.panels(len(names))
    if not result or not names:
        charts.nothing(panels[0])
        return figure
    for name, axes in zip(names, panels, strict=True):
        _draw(result, [run for run in found if run.workload == name], axes)
        what = strategies.with_recipe(result, name)
        axes.set_title(f"{what}, a trial of the method" if result.emulated else what)
    return figure


def _draw(result: Result, found: Sequence[StrategyRun], axes: Axes) -> None:
    """The recommended strategy's colour is ink where nothing is recommended, because devices are emulated."""
    able = timed(found, "strong")
    if not able:
        charts.nothing(axes)
        return
    for scaling, dash in (("strong", "-"), ("weak", "--")):
        several = [run for run in timed(found, scaling) if run.devices > 1]
        choice = choose(several, scaling)
        most = max((run.devices for run in several), default=0)
        # More lines would be a tangle, and the tables have them all.
        others = [run.strategy for run in sorted(several, key=lambda p: (p.devices != most, -p.rate))][:MOST]
        for name in dict.fromkeys(run.strategy for run in several):
            own = sorted((run for run in several if run.strategy == name), key=lambda p: (p.devices, -p.nodes))
            line = [*{run.devices: run for run in own}.values()]  # each over the fewest nodes
            if choice and choice.best.strategy == name:
                text = name if scaling == "strong" else f"{name}, weak"
                _line(result, line, axes, text, style.INK if result.emulated else style.colour(name), dash)
            elif scaling == "strong" and name in others:
                ys = [run.rate for run in line]
                axes.plot([run.devices for run in line], ys, style.marker(name) + "-", color=OTHERS, **THIN)
                layout.name_line_end(axes, line[-1].devices, line[-1].rate, name, OTHERS)
    counts = sorted({run.devices for run in able})
    for alone in [run for run in able if run.devices == 1][:1]:
        charts.ideal(axes, [1, counts[-1]], [alone.rate, counts[-1] * alone.rate])
        axes.plot([1], [alone.rate], style.marker(SINGLE.name), color=style.colour("ideal"))
    axes.set(xlabel="devices", ylabel=f"{able[0].unit}/s", xscale="log", yscale="log")
    charts.ticks(axes, counts)
    charts.number_axis(axes.yaxis, "")


def _line(result: Result, line: Sequence[StrategyRun], axes: Axes, label: str, colour: str, dash: str) -> None:
    shown = [points.rated(result, p.step, p.step.integer("units"), series=label, x=p.devices) for p in line]
    axes.plot([p.devices for p in line], [p.value for p in shown], dash, color=colour, linewidth=2.4, zorder=3)
    for point, run in zip(shown, line, strict=True):
        gid, mark = points.show(axes, point, f"{run.unit}/s"), style.marker(run.strategy)
        axes.plot([run.devices], [point.value], mark, color=colour, ms=6, gid=gid, zorder=3)
        axes.vlines([run.devices], [point.low], [point.high], color=colour, linewidth=1.2)
    layout.name_line_end(axes, line[-1].devices, line[-1].rate, label, colour)


def findings(measured: PlatformResults) -> list[Finding]:
    """The advice, four sentences per workload at most; of emulated devices none."""
    if measured.emulated:
        text = "No advice is given: CPU workers stand in for devices. The tables below, in grey, try the method out."
        return [Finding(text=text, headline="no advice: emulated", topic=Topic.EMULATED)]
    if found := advice_text.advice(measured):
        return found
    result = measured.of("strategies")
    why = formatting.reason(result, "step_time") if result else ""
    text = f"Nothing to choose from: {why or 'strategies was not measured'}."
    return [Finding(text=text, headline="not compared", topic=Topic.NOT_MEASURED)]


def tables(measured: PlatformResults) -> list[Table]:
    """The recommendations, everything they were chosen from, and the settings; all a trial on emulated devices."""
    result, trial = measured.of("strategies"), measured.emulated
    made = [_defaults(changes(measured))]
    if result:
        made = [_summary(result), *_recipes(result), _everything(result), _by_batch(result), *made]
    if trial:
        note = "What real devices with these times would be told, in four sentences per workload at most."
        said = [{"Sentence": one.text} for one in advice_text.advice(measured)]
        made.insert(0, Table.of("What would be advised", said, note))
    return [replace(table, trial=trial) for table in made if table.rows]


def _summary(result: Result) -> Table:
    note = (
        "Use: the highest rate with the same total batch, but one device unless several are surely faster. Gain: its"
        " rate over one device's. By: the runner-up's time over it. Collapses at: samples per device at which each"
        " device surely does less than half of what one alone does with its whole batch. Avoid: slower than one device,"
        " or less than half as fast as the best one on as many devices."
    )
    return Table.of("What to use", [_of_workload(result, name) for name in workloads(result)], note)


def _of_workload(result: Result, workload: str) -> Row:
    found = strategy_runs(result, workload)
    choice, least = choose(found, "strong"), fewest(found)
    runner_up = next(iter(choice.others), None) if choice else None
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
        "Avoid": ", ".join(dict.fromkeys(run.strategy for run, _ in avoid(found))),
    }


def _recipes(result: Result) -> list[Table]:
    """What each recipe reaches by each strategy; apart what another one beats in every respect."""
    kept, beaten = list[Row](), list[Row]()
    for name in workloads(result):
        found = recipe_runs(result, name)
        fastest = {run.devices: run for run in reversed(found)}.values()
        for run in found:
            rows = beaten if any(run.is_dominated_by(other) for other in found) else kept
            rows.append(_of_recipe(result, run) | {"Fastest": "yes" * (run in fastest)})
    note = "Gain: the rate over one device's by the workload's own recipe. "
    beats = (
        "What is surely slower than another one here has a table of its own, unless it needs less memory or lets the"
        " batch grow further; where no memory is known, than another one by the same recipe."
    )
    tables = Table.of("Recipes", kept, note + beats), Table.of("Recipes that others beat", beaten, note)
    return [replace(table.filled(), note=table.note) for table in tables if table.rows]


def _of_recipe(result: Result, run: StrategyRun) -> Row:
    gain = Cell(formatting.factor(run.gain), run.gain.value) if run.gain else EMPTY
    return {
        "Workload": run.workload,
        "Recipe": strategies.in_words(*run.recipe) + " (its own)" * run.own,
        "Strategy": run.strategy,
        "Devices": strategies.devices_cell(run.devices, run.nodes),
        "Samples on each": Cell(f"{run.batch / run.devices:g}", run.batch / run.devices),
        **strategies.step_cells(result, run.step, gain),
    }


def _one_device(choice: Choice | None, found: list[StrategyRun]) -> str:
    """The textbook's three cases."""
    alone = [run for run in found if run.devices == 1]
    if any(run.fits for run in alone):
        return "fits, but slow" if choice and choice.best.devices > 1 else "fits"
    return alone[0].status if alone else ""


def _everything(result: Result) -> Table:
    note = (
        "Efficiency: the rate over that of as many devices that each work as fast as one alone. Memory: of the device"
        " that needs the most."
    )
    rows = []
    for name in workloads(result):
        found = strategy_runs(result, name)
        decisions = _decisions(found)
        order = sorted(found, key=lambda p: (p.devices, p.nodes, p.scaling, -p.rate if p.fits else 0.0, p.strategy))
        rows += [_of_run(result, run, decisions.get(id(run), "")) for run in order]
    return Table.of("Every strategy, by devices", rows, note)


def _decisions(found: list[StrategyRun]) -> dict[int, str]:
    said = {id(run): f"avoid: {why}" for run, why in avoid(found)}
    for scaling, what in (("weak", ", if the batch grows"), ("strong", "")):
        choice = choose([p for p in found if p.devices > 1], scaling) if what else choose(found, scaling)
        if choice:
            said |= {id(run): f"not told apart from it{what}" for run in choice.tied}
            for run, ratio in choice.others[:1]:
                said[id(run)] = f"runner-up{what}" + ", not told apart" * (ratio.verdict != "slower")
            said[id(choice.best)] = f"recommended{what}"
    return said


def _of_run(result: Result, run: StrategyRun, decision: str) -> Row:
    why = "" if run.fits else f": {run.step.note if run.status == TOO_LARGE else run.step.why}"
    efficiency = run.efficiency if run.devices > 1 else None
    return {
        "Workload": run.workload,
        "Strategy": run.strategy,
        "Devices": strategies.devices_cell(run.devices, run.nodes),
        "Scaling": run.scaling if run.devices > 1 else "",
        "Fits": f"{run.status}{why}",
        "Rate": Cell(f"{formatting.count(run.rate)} {run.unit}/s", run.rate) if run.fits else "",
        "Efficiency": Cell(formatting.share(efficiency), efficiency.value) if efficiency else "",
        "Memory": strategies.memory(result, run.step),
        "Energy": strategies.energy(run.step) if run.fits else "",
        "Decision": decision,
    }


def _by_batch(result: Result) -> Table:
    found = {name: batches(result, name, strategy_runs(result, name)) for name in workloads(result)}
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


def _defaults(found: list[Change]) -> Table:
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


def _ratio(ratio: Ratio | None) -> Cell:
    return Cell(formatting.factor(ratio), ratio.value) if ratio else EMPTY
