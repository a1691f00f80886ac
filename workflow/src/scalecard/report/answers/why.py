"""Why are N devices not N times as fast?

Each bar is one step of a strategy, made of what was measured apart: the compute that is its ideal share of one device's
step, and what comes on top of it. The dotted line is the ideal, the black mark the step as it was timed. On the most
devices, with the batch of one device shared by all. Hatched is what these terms do not explain, dotted what one device
computes again as well. A bar goes beyond its mark by input, and by gains: terms below zero, which are in the table
alone.
"""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import breakdown, by_key, formatting
from scalecard.analysis.breakdown import Breakdown, Term
from scalecard.analysis.health.alerts import alerts
from scalecard.analysis.health.judge_state import held_back
from scalecard.analysis.health.verdict import EXPERIMENT as HEALTH
from scalecard.analysis.health.verdict import Kind
from scalecard.analysis.platforms import PlatformResults
from scalecard.figures import charts, layout
from scalecard.figures.points import Point
from scalecard.records.statistics import Interval
from scalecard.records.strategies import DDP
from scalecard.report.answers import not_timed
from scalecard.report.sections import Finding, Topic
from scalecard.report.sections.strategies import with_recipe
from scalecard.report.table import EMPTY, Cell, Table

IS = {
    breakdown.UPDATE: "the update of parameters, which no smaller batch makes shorter",
    breakdown.SMALLER: "computing less efficiently on a smaller batch",
    breakdown.LAUNCHING: "launching: the host sets the pace",
    breakdown.SHARING: "devices that slow each other down when all compute at once",
    breakdown.SLOWEST: "waiting for the slowest rank",
    breakdown.EXPOSED: "communication that is not hidden behind computing",
    breakdown.UNEVEN: "stages that do not take the same time",
    breakdown.BUBBLE: "the bubble, in which stages wait for one another",
    breakdown.INPUT: "waiting for input",
}
REDUCED_BY = {
    breakdown.UPDATE: "ZeRO-1 or FSDP, which divide it, or a larger batch per device",
    breakdown.SMALLER: "a larger batch per device",
    breakdown.LAUNCHING: "a larger batch per device, torch.compile or CUDA graphs",
    breakdown.SHARING: "more power or memory bandwidth, or more of the host's cores",
    breakdown.SLOWEST: "equally fast devices or, if batches vary in length, equal ones",
    breakdown.EXPOSED: "a larger batch per device, accumulation, a compressed exchange or a faster link",
    breakdown.UNEVEN: "another cut",
    breakdown.BUBBLE: "more micro-batches",
    breakdown.INPUT: "more workers, or less work per sample",
}
SLOWED = "Every device waits for the slowest, and this machine has faults that steps meet"
# Of what health finds, this slows no step that computes on data that is there.
NOT_OF_STEPS = (Kind.LATENCY, Kind.STORAGE, Kind.FREE_SPACE, Kind.NOT_MEASURED, Kind.FAILED, Kind.OTHER)
HATCHED = {breakdown.REST: "///", breakdown.RECOMPUTED: "..."}


def plot(measured: PlatformResults) -> Figure:
    """A panel per workload, a stacked bar per strategy."""
    found, result = _on_most_devices(measured), measured.of("strategies")
    figure, panels = layout.panels(len(found))
    for axes, (name, own) in zip(panels, (found or {"": []}).items(), strict=True):
        _bars(own, axes, measured.platform)
        axes.set_title(with_recipe(result, name) if result and name else name)
    return figure


def _on_most_devices(measured: PlatformResults) -> dict[str, list[Breakdown]]:
    """By workload, that of the fastest step first: strong scaling or, if there is none, weak scaling."""
    by_workload = by_key((each.run.workload, each) for each in breakdown.of_strategies(measured))
    for name, own in by_workload.items():
        chosen = [each for each in own if each.run.scaling == "strong"] or own
        most = max(each.run.devices for each in chosen)
        by_workload[name] = sorted((e for e in chosen if e.run.devices == most), key=lambda each: each.seconds)
    return dict(sorted(by_workload.items(), key=lambda item: item[1][0].seconds))


def _bars(found: Sequence[Breakdown], axes: Axes, platform: str) -> None:
    if not found:
        charts.nothing(axes)
        return
    terms = [name for name in breakdown.TERMS if any(each.of(name) > 0 for each in found)]
    charts.stacks([_point(e, name, platform) for name in terms for e in found], axes, unit="s", hatched=HATCHED)
    charts.mark_rows(axes, {row: each.seconds for row, each in enumerate(found)})
    charts.mark_at(axes, found[0].ideal, "ideal")
    axes.set(xlabel=f"time of a step on {found[0].run.devices} devices")


def _point(found: Breakdown, name: str, platform: str) -> Point:
    term, run = found.term(name), found.run
    bounds = Interval(term.seconds - term.error, term.seconds + term.error) if term.error else None
    return Point(
        series=run.strategy,
        x=name,
        value=term.seconds,
        interval=bounds,
        samples=run.step.num_samples,
        platform=platform,
    )


def findings(measured: PlatformResults) -> list[Finding]:
    """What is broken; of DDP and each workload's fastest strategy the largest term and, unless emulated, its remedy."""
    found = sorted((e for own in _on_most_devices(measured).values() for e in own), key=lambda each: each.seconds)
    fastest = {each.run.workload: each for each in reversed(found)}.values()
    chosen = [each for each in found if each in fastest or each.run.strategy == DDP.name]
    faults = [] if measured.emulated else [*_faults(measured, chosen)]
    said = [Finding(text=f"{SLOWED}: {'; '.join(faults)}.", topic=Topic.LARGEST_TERM)] if faults else []
    largest = [_largest(each, advise=not measured.emulated, faulty=bool(faults)) for each in chosen]
    return [*said, *largest, *_missing(found)]


def _faults(measured: PlatformResults, chosen: Sequence[Breakdown]) -> Iterator[str]:
    """What health found wrong with a part that steps use, and GPUs that were slowed down while these were timed."""
    health, named = measured.of(HEALTH), set[int | None]()
    for alert in alerts(health) if health and chosen else ():
        if alert.kind not in NOT_OF_STEPS:
            named |= {place.device for place in alert.place if alert.kind is Kind.SLOWED_DOWN}
            yield f"{alert.what} ({alert.value})"
    reasons = dict[int, dict[str, float]]()
    for step in (each.run.step for each in chosen):
        for gpu in range(step.integer("devices")):
            for reason, share in held_back(step, gpu).items():
                known = reasons.setdefault(gpu, {})
                known[reason] = max(share, known.get(reason, 0.0))
    for gpu, own in reasons.items():
        if gpu not in named:
            told = " and ".join(f"{why} in {formatting.percent(share)} of the readings" for why, share in own.items())
            yield f"GPU {gpu}, slowed down while they were timed ({told})"


def _missing(found: Sequence[Breakdown]) -> Iterator[Finding]:
    """The terms that are part of the rest, because something was not timed alone."""
    strategies = by_key((untimed, each.run.strategy) for each in found for untimed in each.untimed)
    terms = [
        f"{', '.join(dict.fromkeys(names))}: {', '.join(breakdown.TERMS_OF[untimed])} ({not_timed(untimed)})"
        for untimed, names in strategies.items()
    ]
    if terms:
        yield Finding(text=f"Part of the rest, not measured apart: {'; '.join(terms)}.", topic=Topic.MISSING_TERMS)


def _largest(found: Breakdown, *, advise: bool, faulty: bool) -> Finding:
    largest, name = found.largest, f"{found.run.workload}, {found.run.strategy} on {found.run.devices} devices"
    ideal, late = formatting.seconds(found.ideal), found.of(breakdown.INPUT)
    if again := found.of(breakdown.RECOMPUTED):
        ideal += f", of which {formatting.seconds(again)} compute again what checkpointing has not kept"
    fed = f" ({formatting.seconds(found.seconds + late)} if its loader feeds it)" if late else ""
    text = f"{name}: a step takes {formatting.seconds(found.seconds)}{fed}, ideal would be {ideal}."
    if largest.seconds <= 0:
        return Finding(text=f"{text} No overhead was measured.", topic=Topic.UNSURE_TERM)
    sure = largest.error is None or largest.seconds >= largest.error
    if largest.name != breakdown.REST:
        text += f" The largest part of the difference, {_amount(largest, found)}, is {IS[largest.name]}"
        if not sure:
            text += ", but within its error"
        elif advise:
            text += "; mend what is named above first" if faulty else f"; {REDUCED_BY[largest.name]} would reduce it"
        text += "."
        if sure and largest.rank is not None:
            look = ": look at its device in the health check" if advise else ""
            text += f" It is nearly always rank {largest.rank}{look}."
    if not found.explained:
        rest = found.term(breakdown.REST)
        amount = _amount(Term(rest.name, abs(rest.seconds), rest.error), found)
        text += f" The parts explain {amount} too much." if rest.seconds < 0 else f" {amount} is unexplained."
    headline = f"{found.run.workload}: {largest.name}, {_share(largest.seconds, found)}" if sure else ""
    return Finding(text=text, headline=headline, topic=Topic.LARGEST_TERM if sure else Topic.UNSURE_TERM)


def _amount(term: Term, found: Breakdown) -> str:
    error = f" ± {formatting.seconds(term.error)}" if term.error is not None else ""
    return f"{formatting.seconds(term.seconds)}{error} ({_share(term.seconds, found)} of the step)"


def _share(seconds: float, found: Breakdown) -> str:
    return formatting.percent(seconds / found.seconds)


def tables(measured: PlatformResults) -> list[Table]:
    """Every strategy at every number of devices: each term in seconds and as a share of the step."""
    every = breakdown.of_strategies(measured)
    found = sorted(every, key=lambda e: (e.run.workload, e.run.devices, e.run.scaling, e.seconds))
    shown = [name for name in breakdown.TERMS if any(each.of(name) for each in found)]
    rows: list[dict[str, str | Cell]] = [
        {
            "Workload": each.run.workload,
            "Strategy": each.run.strategy,
            "Devices": Cell(f"{each.run.devices}{f' on {nodes} nodes' if nodes else ''}", each.run.devices),
            "Scaling": each.run.scaling,
            "Step": Cell(formatting.seconds(each.seconds), each.seconds),
            **{name.capitalize(): _cell(each, name) for name in shown},
        }
        for each in found
        for nodes in [each.run.step.case.get("nodes")]
    ]
    note = (
        "What each term is: see the method. A term below zero is a gain. The rest is what no term explains. Input comes"
        " on top of the step."
    )
    return [Table.of("Where the time of a step goes", rows, note)]


def _cell(each: Breakdown, name: str) -> Cell:
    seconds = each.of(name)
    sign = "-" if seconds < 0 else ""
    return Cell(f"{sign}{formatting.seconds(abs(seconds))} ({_share(seconds, each)})", seconds) if seconds else EMPTY
