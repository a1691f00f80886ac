"""Which way to split a model over devices is the fastest, which needs the least memory, and which cannot be used?

Time of a step of every strategy on the most devices, one panel per workload, with the batch of one device shared by
all; the dotted line is one device alone. Whiskers are 95 % intervals.
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from scalecard.analysis import experiment_results, formatting
from scalecard.analysis.strategy_choice import workloads
from scalecard.figures import charts, points, style
from scalecard.figures.points import Point
from scalecard.records.record import Record, Result
from scalecard.records.strategies import DDP
from scalecard.report import strategy_table
from scalecard.report.sections import Finding, Number, Topic, not_measured
from scalecard.report.table import Table


def plot(results: Sequence[Result]) -> Figure:
    """Time of a step by strategy, a panel per workload."""
    names = workloads(results[0])
    shown = [[point for result in results for point in _at_most_devices(result, name)] for name in names]
    figure, panels = charts.panels(len(names), height=max(map(charts.height_of, shown), default=style.HEIGHT))
    for name, own, axes in zip(names or [""], shown or [[]], panels, strict=True):
        charts.bars(own, axes, unit="s")
        single = experiment_results.single(results[0], name)
        if single and len(results) == 1:  # other platforms have one of their own
            charts.mark_at(axes, single.median, "one device")
        axes.set(xlabel="time of a step", ylabel="", title=name)
    return figure


def _at_most_devices(result: Result, workload: str) -> list[Point]:
    """Strong scaling on the most devices; a step of one device does as much."""
    most = max((record.integer("devices") for record in _all(result, workload)), default=1)
    records = [r for r in _all(result, workload, scaling="strong", devices=most) if r.samples]
    return [
        points.timed(result, r, series="", x=r.text("strategy") + formatting.over_nodes(r.integer("nodes", 0)))
        for r in sorted(records, key=lambda record: record.median)
    ]


def _all(result: Result, workload: str, **case: str | int) -> list[Record]:
    return [r for r in result.select("step_time", workload=workload, **case) if r.case.get("strategy")]


def findings(result: Result) -> list[Finding]:
    """Of every workload, the fastest strategy against one device, and the runner-up."""
    found = [finding for name in workloads(result) for finding in _of_workload(result, name)]
    return found or [not_measured(result, "step_time", "Not compared", "one device")]


def _of_workload(result: Result, workload: str) -> Iterator[Finding]:
    single = experiment_results.single(result, workload)
    several = [r for r in _all(result, workload, scaling="strong") if r.integer("devices") > 1]
    if not several:
        return
    most = max(r.integer("devices") for r in several)
    best, *others = sorted((r for r in several if r.integer("devices") == most), key=lambda r: r.median)
    headline = f"{workload}: {best.case['strategy']}"
    name = f"{headline}, the fastest on {most} devices,"
    runner_up = "; " + formatting.versus(others[0].text("strategy"), others[0].over(best), "it") if others else ""
    if single is None:
        text = f"{name} takes {formatting.time(best)} for a step; one device alone was not timed{runner_up}."
        yield Finding(text=text, headline=headline, topic=Topic.BEST_STRATEGY)
    else:
        text = formatting.versus(name, best.over(single), "one device") + runner_up + "."
        headline += f", {formatting.factor(formatting.speedup(best, single))}"
        yield Finding(text=text, headline=headline, topic=Topic.BEST_STRATEGY)
        slower = ", ".join(r.text("strategy") for r in (best, *others) if r.over(single).verdict == "slower")
        if slower:
            text = f"{workload}: with the same batch on {most} devices, {slower} take longer than one device."
            yield Finding(text=text, topic=Topic.SLOWER_STRATEGIES)
    yield from _least_memory(result, workload, most)


def _least_memory(result: Result, workload: str, devices: int) -> Iterator[Finding]:
    records = result.select("peak_memory", workload=workload, devices=devices, scaling="strong")
    measured = sorted((record for record in records if record.samples), key=lambda record: record.median)
    if len(measured) > 1:
        least, most = measured[0], measured[-1]
        text = (
            f"{workload}: on {devices} devices {least.case['strategy']} needs the least memory,"
            f" {formatting.count_bytes(least.median)} on its fullest device; {most.case['strategy']} needs the most,"
            f" {formatting.count_bytes(most.median)}."
        )
        yield Finding(text=text, topic=Topic.LEAST_MEMORY)


def overview(result: Result) -> Table:
    """Every strategy that was timed."""
    return strategy_table.table(result)


def published(result: Result) -> dict[str, float]:
    """No published figure has these workloads at these values."""
    return {}


def nightly(result: Result) -> Iterator[Number]:
    """DDP on the most devices."""
    for name in workloads(result):
        of_ddp = _all(result, name, strategy=DDP.name, scaling="strong")
        if of_ddp:
            yield Number(label=f"{name}, {DDP.name}", record=formatting.largest(of_ddp, "devices")[0])
