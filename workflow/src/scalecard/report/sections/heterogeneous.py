"""How should a minibatch be divided between unequal devices, and does the slower one help at all?

Time of a step over the samples that the first device takes of the minibatch; the second takes the rest. Lines: each
device alone on its share, and both together, with bands of 95 % intervals. Where the first two cross, both are
predicted to finish at the same time (dotted). Dashed: the fastest device alone on the whole minibatch.
"""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import formatting
from scalecard.analysis.uneven_split import Division, divisions, over_in_rounds, share_of
from scalecard.figures import charts, layout, points, style
from scalecard.records.record import Result
from scalecard.records.strategies import SINGLE
from scalecard.report.sections import Finding, Number, Topic, not_measured


def plot(results: Sequence[Result]) -> Figure:
    """The first platform's divisions, two panels each: over all shares, and near the prediction."""
    found = divisions(results[0])
    figure, panels = layout.panels(2 * len(found))
    for division, left, right in zip(found, panels[::2], panels[1::2], strict=False):
        _draw(results[0], division, left)
        _draw(results[0], division, right, named=False)
        # The shares that were swept, without the even split.
        near = [r for r in division.together if share_of(r) != division.batch_size // 2] or division.together
        shares, times = [share_of(r) for r in [*near, division.nearest]], [r.median for r in [*near, division.alone]]
        margin = max(1.0, 0.2 * (max(shares) - min(shares)))
        right.set(xlim=(min(shares) - margin, max(shares) + margin), ylim=(0, 1.3 * max(times)))
        left.set(title=f"{division.alone.case['workload']}: all shares", ylim=(0, None))
        right.set(title="near the prediction")
    if not found:
        charts.nothing(panels[0])
    return figure


def _draw(result: Result, division: Division, axes: Axes, *, named: bool = True) -> None:
    shown = [
        points.timed(result, r, series=f"{name} alone", x=share_of(r) if first else division.batch_size - share_of(r))
        for first, name, curve in zip((True, False), division.names, division.curves, strict=True)
        for r in curve
    ]
    shown += [points.timed(result, r, series="both together", x=share_of(r)) for r in division.together]
    across = f"samples on {division.names[0]}, of {division.batch_size}"
    charts.curves(shown, axes, unit="s", named=named, xlabel=across, ylabel="time of a step")
    charts.mark_at(axes, division.predicted * division.batch_size, "predicted")
    axes.axhline(division.alone.median, color=style.colour(SINGLE.name), linestyle="--")


def findings(result: Result) -> list[Finding]:
    """What the slower device brings, and how good the prediction is."""
    found = [finding for division in divisions(result) for finding in (_gain(division), _prediction(division))]
    return found or [not_measured(result, "step_time", "Not divided", "not divided")]


def _gain(division: Division) -> Finding:
    """Of the best division measured and, as the best of several owes something to chance, of the predicted one."""
    alone, slower = f"{division.names[division.faster]} alone", division.names[1 - division.faster]
    best, count = min(division.together, key=lambda record: record.median), len(division.together)
    ratio = over_in_rounds(best, division.alone)
    model = f"{division.alone.case['workload']}, {division.batch_size} samples"
    text = formatting.versus(f"{model}: {division.shares(best)}, the best of {count} divisions measured,", ratio, alone)
    if division.nearest not in (best, division.alone):
        own = over_in_rounds(division.nearest, division.alone)
        text += f"; {formatting.versus('the predicted division, chosen before it was measured,', own, 'it')}"
    headline = "no gain"
    if ratio.verdict == "faster":
        headline = f"{1 / ratio.value:.2f}x"
    else:
        unclear = ratio.verdict == "unclear"
        text += f". Whether {slower} helps cannot be said" if unclear else f". {slower} does not help"
    text += "."
    if division.slowed > 1:
        text += f" Both are CPU workers: one computes its share {division.slowed} times, to stand for a slower device."
    elif division.emulated:
        text += " Both are CPU workers, with unequal numbers of cores to stand for unequal devices."
    return Finding(text, Topic.UNEQUAL_DEVICES, f"{headline} by the slower device")


def _prediction(division: Division) -> Finding:
    """The division at which both should finish together, against what was measured there and at the best."""
    nearest, best = division.nearest, min([division.alone, *division.together], key=lambda record: record.median)
    first = division.predicted * division.batch_size
    text = (
        f"From each device alone, {first:.3g} of {division.batch_size} samples on {division.names[0]} should make both"
        f" finish at the same time, after {formatting.seconds(division.predicted_time)} without any exchange; with"
        f" {division.shares(nearest)}, a step takes {formatting.time(nearest)}"
    )
    if nearest is best:
        text += ", the best that was measured."
    else:
        other = f"the best one measured, {division.shares(best)}"
        text += f"; {formatting.versus('this', over_in_rounds(nearest, best), other)}."
    drift = division.alone.over(division.curves[division.faster][-1])
    if drift.verdict in ("faster", "slower"):
        name = f"{division.names[division.faster]} alone, in the rounds of the divisions,"
        text += f" In between the machine changed: {formatting.versus(name, drift, 'in those before')}."
    return Finding(text, Topic.PREDICTED_SHARE)


def nightly(result: Result) -> Iterator[Number]:
    """Each device alone, and the even split: the predicted share may be another every night."""
    for division in divisions(result)[:2]:
        first, second = division.names
        what = f"{division.alone.case['workload']}, {division.batch_size} samples"
        for name, curve in zip(division.names, division.curves, strict=True):
            yield Number(f"{what}, {name} alone", curve[-1])
        for record in division.together:
            if share_of(record) == division.batch_size // 2:
                yield Number(f"{what}, half on {first} and half on {second}", record)
