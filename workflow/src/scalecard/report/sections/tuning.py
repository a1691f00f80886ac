"""What makes one device faster before more are bought, and does it still train the same?

How many times as many samples or tokens per second as in the plain step (dotted), which is in the precision of the
workload's recipe, a panel per workload, on one device and on all of them under DDP. For each further rung, one bar for
it alone, and one for it on top of all rungs above it. Whiskers are 95 % intervals. If epochs were timed, the last
panels have their seconds and the test accuracy, in float32 and with the rungs whose steps were the fastest.
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from scalecard.analysis import formatting, learning
from scalecard.analysis.published_figures import Ours
from scalecard.analysis.setting_gains import Ladder, is_larger, ladders
from scalecard.analysis.step_records import rate
from scalecard.figures import charts, layout, points
from scalecard.records.axes import BASELINE, RUNGS, combination, parts_of, rungs_of
from scalecard.records.record import Record, Result
from scalecard.report.sections import Finding, Number, Topic, not_measured, published_epochs, strategies
from scalecard.report.table import Cell, Table

MEANINGS = strategies.MEANINGS | {
    "Gain": "the rate over that of the plain step, which is in the precision of the workload's recipe"
}

# What one rung does, and what several do.
VERBS = {
    "faster": ("helps", "help"),
    "slower": ("costs time", "cost time"),
    "": ("makes no difference that can be told", "make no difference that can be told"),
}


def plot(results: Sequence[Result]) -> Figure:
    """The first platform's ladders, and its epochs."""
    here = results[0]
    found, epochs = list(ladders(here)), here.select("epoch_time")
    shown = [_gains(here, ladder) for ladder in found]
    count = len(found) + 2 * bool(epochs)
    figure, panels = layout.panels(count)
    for ladder, own, axes in zip(found, shown, panels, strict=False):
        where = "one device" if ladder.devices == 1 else f"{ladder.devices} devices, DDP"
        across = f"{ladder.base.case['unit']}/s over {ladder.name}'s"
        charts.bars(own, axes, unit="x", xlabel=across, title=f"{ladder.workload}, {where}")
        charts.mark_at(axes, 1, ladder.name)
    if not count:
        charts.nothing(panels[0])
    if epochs:
        times = [points.timed(here, record, series="", x=_rungs(record)) for record in epochs]
        title = f"epochs of {here.spec['epochs_of']}"
        charts.bars(times, panels[-2], unit="s", xlabel="time of an epoch", title=title)
        curves = {_rungs(curve): curve for curve in here.select("accuracy")}
        charts.accuracies(here, curves, panels[-1], title="accuracy after each epoch")
    return figure


def _gains(result: Result, ladder: Ladder) -> list[points.Point]:
    own = rungs_of(ladder.base.case)
    kinds = {"alone": [*ladder.alone, *(r for r in ladder.larger if rungs_of(r.case) == own)]}
    kinds["on those above"] = [*ladder.cumulative[1:], *(r for r in ladder.larger if rungs_of(r.case) != own)]
    base = rate(ladder.base)
    return [
        points.rated(result, record, record.integer("units") / base, series=kind, x=parts_of(record.case)[-1])
        for kind, records in kinds.items()
        for record in records
    ]


def _rungs(record: Record) -> str:
    return "fastest rungs" if rungs_of(record.case) else BASELINE


def findings(result: Result) -> list[Finding]:
    """Of every workload what the rungs gain together and alone, what they cost, and what is left of it under DDP."""
    found = list(ladders(result))
    if not found:
        return [not_measured(result, "step_time", "Not tuned", "not tuned")]
    made = list(_epochs(result))
    for ladder in (ladder for ladder in found if ladder.devices == 1):
        made += [*_together(ladder), *_alone(ladder), *_larger(ladder), *_compiling(result, ladder)]
        for several in (other for other in found if other.workload == ladder.workload and other.devices > 1):
            made += _efficiency(ladder, several)
    return made


def _together(ladder: Ladder) -> Iterator[Finding]:
    """The best of several combinations owes something to chance."""
    best, count = ladder.best(), len({combination(record.case) for record in [*ladder.alone, *ladder.cumulative]})
    plain = f"the plain {ladder.name} step"
    if best is ladder.base:
        text = f"{ladder.workload}: no combination of rungs is faster than {plain} (tried: {count})."
        yield Finding(text, Topic.TUNED_STEP, f"{ladder.workload}: no gain")
        return
    gain, name = ladder.gain(best), f"{ladder.workload}: {combination(best.case)}"
    text = (
        f"{formatting.versus(name, best.over(ladder.base), plain)}, the best of {count} combinations"
        f" at one batch size: {formatting.factor(gain)} the {ladder.base.case['unit']}/s."
    )
    yield Finding(text, Topic.TUNED_STEP, f"{ladder.workload}: {gain.value:.2f}x")


def _alone(ladder: Ladder) -> Iterator[Finding]:
    """Which rungs help by themselves, which change nothing that can be told, and which cost time."""
    by_verdict: dict[str, list[str]] = {verdict: [] for verdict in VERBS}
    for record in ladder.alone:
        verdict = record.over(ladder.base).verdict
        name = f"{parts_of(record.case)[-1]} ({ladder.gain(record).value:.2f}x)"
        by_verdict[verdict if verdict in VERBS else ""].append(name)
    parts = [f"{', '.join(names)} {VERBS[verdict][len(names) > 1]}" for verdict, names in by_verdict.items() if names]
    if parts:
        yield Finding(f"{ladder.workload}, each rung alone on one device: {'; '.join(parts)}.", Topic.EACH_RUNG)


def _larger(ladder: Ladder) -> Iterator[Finding]:
    """What more samples in a step bring, against the same rungs at the workload's own batch."""
    best = max((record for record in ladder.larger if "batch_factor" in record.case), key=rate, default=None)
    if best and (before := ladder.find(rungs_of(best.case))):
        text = (
            f"{ladder.workload}: of the larger batches, {best.case['batch_size']} samples with"
            f" {combination(before.case)} are best: {rate(best) / rate(before):.2f} times the {best.case['unit']}/s of"
            f" {before.case['batch_size']}."
        )
        yield Finding(text, Topic.LARGER_BATCHES)


def _compiling(result: Result, ladder: Ladder) -> Iterator[Finding]:
    for record in result.select("compile_time", workload=ladder.workload, devices=ladder.devices)[:1]:
        text = f"{ladder.workload}: with torch.compile, the first step takes {formatting.seconds(record.median)}"
        step = ladder.find((*rungs_of(ladder.base.case), "compile"))
        if step and step.over(ladder.base).verdict == "faster":
            text += f", repaid after {formatting.count(record.median / (ladder.base.median - step.median))} steps"
        yield Finding(f"{text}. It is not part of any other time.", Topic.COMPILING)


def _efficiency(single: Ladder, several: Ladder) -> Iterator[Finding]:
    """A faster device leaves less time to hide the exchange in."""
    best = single.best(lambda record: not is_larger(record) and several.find(rungs_of(record.case)) is not None)
    tuned = several.find(rungs_of(best.case))
    if best is single.base or tuned is None:
        return
    before, after = (
        formatting.percent(rate(many) / (several.devices * rate(one)))
        for one, many in ((single.base, several.base), (best, tuned))
    )
    text = (
        f"{single.workload} under DDP on {several.devices} devices, the batch growing with them: {before} efficient"
        f" in {single.name}, {after} with {combination(best.case)}; there it is"
        f" {formatting.factor(several.gain(tuned))} as fast as {single.name}."
    )
    yield Finding(text, Topic.TUNED_SCALING)


def _epochs(result: Result) -> Iterator[Finding]:
    plain = result.find("epoch_time", **dict.fromkeys(RUNGS))
    tuned = next((record for record in result.select("epoch_time") if record is not plain), None)
    if not (plain and tuned):
        return
    text = (
        f"An epoch of {tuned.case['workload']} takes {formatting.time(tuned)} with {combination(tuned.case)}, and"
        f" {formatting.time(plain)} in float32"
    )
    scored = [score for record in (tuned, plain) if (score := result.find("accuracy", **record.case))]
    if len(scored) == 2:
        ours, theirs = map(learning.final, scored)
        error = learning.error_of(ours, theirs, result.spec["test_images"] or learning.TEST_IMAGES)
        text += f"; after {len(scored[0].samples[0])} epochs the test accuracy is {ours:.3f} instead of {theirs:.3f}"
        text += f" (give or take {error:.3f})"
    yield Finding(f"{text}.", Topic.TUNED_EPOCHS, f"{formatting.seconds(tuned.median)} an epoch")


def overview(result: Result) -> Table:
    """Every combination that was timed."""
    rows = [
        {
            "Workload": ladder.workload,
            "Devices": Cell(str(ladder.devices), ladder.devices),
            "Rungs": combination(record.case),
            **strategies.step_cells(
                result,
                record,
                Cell("" if record is ladder.base else f"{ladder.gain(record).value:.2f}x", ladder.gain(record).value),
            ),
        }
        for ladder in ladders(result)
        for record in [ladder.base, *ladder.records]
    ]
    return Table.of("Rungs", rows).filled().explained(MEANINGS)


def published(result: Result) -> Iterator[Ours]:
    """Epochs of the textbook's network and their accuracies, each with the precision that its rungs give it."""
    if result.spec["epochs_of"] == "resnet18":
        yield from published_epochs(result)


def nightly(result: Result) -> Iterator[Number]:
    """The plain step of each workload and the step with all rungs, on one device."""
    for ladder in ladders(result):
        if ladder.devices == 1:
            steps = [ladder.base, *ladder.cumulative[-1:]]
            for name, step in {combination(step.case): step for step in steps}.items():
                yield Number(f"step of {ladder.workload}, {name}", step)
