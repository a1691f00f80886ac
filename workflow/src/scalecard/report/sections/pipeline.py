"""How small should micro-batches be, and how close does a pipeline come to the ideal?

Time of one batch on two devices over the split size, the samples of a micro-batch, a panel per platform; lines across
are one device and plain model parallelism. Dotted is what the bubble leaves two equal stages of one device's time,
(m + 1)/2m in m micro-batches: large ones leave a large bubble, small ones pay more overhead. Of the library's schedules
the fastest is drawn; a ring marks the best split size of each. Then the tutorial's two figures by its own code, which
draws its inputs while the clock runs, and beside them ours. Then the fastest step of each cut beside its schedule
played with the stages' own times, which are not equal. Last, the fastest of these as it is played: when each device has
which micro-batch (forward blue, backward orange, its update violet) and when it waits (grey); dotted is how long the
step really takes. Bands and whiskers are 95 % intervals.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import by_key, formatting, platforms
from scalecard.analysis.published_figures import Ours
from scalecard.figures import charts, layout, points, style
from scalecard.figures.points import Point
from scalecard.records.record import Record, Result
from scalecard.records.schedules import SCHEDULES, Played, played_as_timed
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE
from scalecard.report.sections import Finding, Number, Topic, known, not_measured
from scalecard.report.sections.model_parallel import (
    INCLUDES,
    TUTORIAL,
    blocks,
    cut_name,
    tutorial_finding,
    tutorial_name,
    tutorial_pairs,
)

CLOSE = 0.05  # how much longer than played a step may take where nothing else binds
LINES = (SINGLE.name, MODEL_PARALLEL.name)
FITTED, STAGES = "gpipe", 2
MOST_PLATFORMS = 2  # platforms beside which the tutorial's figures are drawn, too: before and after a change
TRUSTED = 0.10  # largest error on points not fitted at which the ideal curve is trusted


def plot(results: Sequence[Result]) -> Figure:
    """Time over split size, a panel per platform; what the tutorial draws; steps beside what is played, and that."""
    in_book = any(map(tutorial_pairs, results)) and len(results) <= MOST_PLATFORMS
    timeline = _timeline(results[0])
    count = len(results) + (3 if in_book else 1)
    figure, panels = layout.panels(count, wide=timeline is not None)
    *others, bars = panels[:count]
    for result, axes in zip(results, others, strict=False):
        sizes = _draw_times(shown := _times(result), axes)
        if sizes:
            _draw_lines(result, axes, sizes, "step_time")
        if sizes and (single := result.find("step_time", strategy=SINGLE.name)):  # the least that the bubble allows
            counts = [math.ceil(result.spec["batch_size"] / size) for size in sizes]
            bound = [single.median * (m + STAGES - 1) / (STAGES * m) for m in counts]
            charts.ideal(axes, sizes, bound, label="the bubble's bound")
            charts.from_zero_or_log(axes, [*(point.value for point in shown), *bound], "s")
        alone = f"{formatting.model_name(result.spec['model'])} on 2 devices"
        axes.set_title(alone if len(results) == 1 else platforms.platform_label(result))
    if in_book:
        _draw_tutorial(results, *others[-2:])
    steps = [
        points.timed(results[0], r, series=what, x=f"{r.case['strategy']} {r.case['split_size']}, {cut_name(r)}")
        for measured, played in _fastest_pairs(results[0])
        for what, r in (("measured", measured), ("simulated", played))
    ]
    charts.bars(steps, bars, unit="s", xlabel="time of one batch", title="measured and simulated")
    if timeline:
        _draw_lanes(*timeline, panels[-1])
    return figure


def _draw_lanes(measured: Record, played: Played, axes: Axes) -> None:
    """Micro-batches are numbered from 0, where there is room; a device ends with its update."""
    shown, done = list[charts.LaneSpan](), dict[int, float]()
    for (forward, stage, micro), begin, end in played.spans:
        shown.append(charts.LaneSpan(stage, "forward" if forward else "backward", begin, end - begin, str(micro)))
        done[stage] = end
    shown += [charts.LaneSpan(stage, "update", end, played.updates[stage]) for stage, end in done.items()]
    notes = [f"idle {formatting.percent(1 - busy / played.makespan)}" for busy in played.busy]
    name = f"{measured.case['strategy']} {measured.case['split_size']}, {cut_name(measured)}"
    look = {"xlabel": f"time as simulated, {name}", "title": "who computes when"}
    charts.lanes(shown, axes, until=played.makespan, notes=notes, measured=measured.median, **look)


def _draw_times(shown: Sequence[Point], axes: Axes) -> list[float]:
    """Curves over the split sizes, which are returned, each with a ring around its best."""
    charts.curves(shown, axes, unit="s", xlabel="split size", ylabel="time of one batch")
    for own in by_key(((point.platform, point.series), point) for point in shown).values():
        best = min(own, key=lambda point: point.value)
        axes.plot([best.x], [best.value], "o", ms=11, mfc="none", mec=style.INK, mew=1.0)
    sizes = charts.numbers(shown)
    axes.set_xscale("log")
    charts.ticks(axes, sizes)
    charts.from_zero_or_log(axes, [point.value for point in shown], "s")
    return sizes


def _draw_tutorial(results: Sequence[Result], over_sizes: Axes, bars: Axes) -> None:
    """The tutorial's two figures, by its own code: the pipeline over the split size, and the bars of its comparison."""
    shown = [
        points.timed(result, record, series="as printed", x=record.integer("split_size"))
        for result in results
        for record in result.select("tutorial_time", strategy="textbook")
    ]
    sizes = _draw_times(shown, over_sizes)
    if sizes and len(results) == 1:
        _draw_lines(results[0], over_sizes, sizes, "tutorial_time")
    over_sizes.set_title("the tutorial's pipeline, as printed")
    three = [
        points.timed(results[0], record, series=series, x=tutorial_name(printed))
        for printed, ours in tutorial_pairs(results[0])
        for series, record in (("as printed", printed), ("ours", ours))
    ]
    charts.bars(three, bars, unit="s", xlabel="time of one batch", title="what the tutorial compares")


def _draw_lines(result: Result, axes: Axes, sizes: Sequence[float], metric: str) -> None:
    """What does not depend on the split size."""
    for name in LINES:
        if record := result.find(metric, strategy=name):
            axes.plot(sizes, [record.median] * len(sizes), "--", color=style.INK, linewidth=0.8)
            layout.name_line_end(axes, sizes[-1], record.median, name, style.INK)


def _times(result: Result) -> list[Point]:
    """At the textbook's cut: three of ours, and the faster one of the library's."""
    runs = [r for r in result.select("step_time", beside=None) if r.case["strategy"] not in LINES and not _balanced(r)]
    library = [record for record in runs if record.case.get("library")]
    fastest = {record.case["strategy"] for record in sorted(library, key=lambda record: record.median)[:1]}
    return [
        points.timed(result, r, series=r.text("strategy"), x=r.integer("split_size"))
        for r in runs
        if r not in library or r.case["strategy"] in fastest
    ]


@dataclass(frozen=True)
class Fit:
    """The `overhead` of a micro-batch in seconds, and the largest relative error on sizes that were not fitted."""

    overhead: float
    best_split: float
    held_out_error: float


def fitted(result: Result) -> Fit | None:
    """Least squares of relative errors on every second split size; None of fewer than four."""
    found = [record for record in result.select("step_time", strategy=FITTED, beside=None) if not _balanced(record)]
    records = sorted(found, key=lambda r: r.integer("split_size"))
    if len(records) < 4:
        return None
    sizes = [r.integer("split_size") for r in records]
    batch = int(result.spec["batch_size"])
    m = np.array([-(-batch // size) for size in sizes], dtype=float)
    times = np.array([r.median for r in records])
    columns = np.stack([(m + STAGES - 1) / m, m + STAGES - 1], axis=1) / times[:, None]
    held_in = np.arange(len(sizes)) % 2 == 0
    (compute, overhead), *_ = np.linalg.lstsq(columns[held_in], np.ones(held_in.sum()), rcond=None)
    error = np.abs(columns[~held_in] @ [compute, overhead] - 1).max()
    # A stage computes for `compute` seconds in all, so sqrt((p - 1) compute / overhead) micro-batches are best.
    best = batch / max(1.0, ((STAGES - 1) * compute / overhead) ** 0.5) if overhead > 0 else sizes[0]
    return Fit(float(overhead), float(best), float(error))


def findings(result: Result) -> list[Finding]:
    """The best split size of the best implementation, against the single device and plain model parallelism."""
    single, plain = (result.find("step_time", strategy=name) for name in LINES)
    runs = [r for r in result.select("step_time", beside=None) if r.case["strategy"] not in LINES]
    if not (single and plain and runs):
        return [not_measured(result, "step_time", "Not measured", "not measured")]
    split = [r for r in runs if r.case["split_size"] != r.case["batch_size"]]
    best = min(split or runs, key=lambda r: r.median)
    name, size = best.case["strategy"], best.case["split_size"]
    where = f", cut {cut_name(best)}," if _balanced(best) else ","
    gain, over_plain = formatting.speedup(best, single), formatting.speedup(best, plain)
    text = (
        f"The best pipeline, {name} with split size {size}{where} is {formatting.factor(gain)} as fast as one"
        f" device and {formatting.factor(over_plain)} as fast as plain model parallelism: {formatting.time(best)} per"
        " batch."
    )
    whole = min(single, plain, key=lambda r: r.median)
    if best.over(whole).verdict == "slower":
        text += f" The whole batch {'on one device' if whole is single else 'by plain model parallelism'} is faster."
    text += _at_the_end(result, best)
    return [
        Finding(text, Topic.BEST_PIPELINE, f"{gain.value:.2f}x at split size {size}"),
        *_textbook(result, single, split),
        *tutorial_finding(result),
        *_order(result),
        *_ideal(result),
        *_balance(result),
        *_library(result),
        *_played(result),
    ]


def _at_the_end(result: Result, best: Record) -> str:
    """A sentence why, if the best of several split sizes is the smallest or the largest that was measured."""
    alike = {axis: value for axis, value in best.case.items() if axis != "split_size"}
    every = {record.integer("split_size") for record in result.select("step_time", beside=None, **alike)}
    sizes = sorted(every - {best.integer("batch_size")})
    if len(sizes) > 1 and best.case["split_size"] == sizes[0]:
        return " That is the smallest one: even there a micro-batch's overhead is less than what the bubble costs."
    if len(sizes) > 1 and best.case["split_size"] == sizes[-1]:
        return " That is the largest one: a further micro-batch costs more here than the smaller bubble brings."
    return ""


def _balanced(record: Record) -> bool:
    return record.case.get("cut") == "balanced"


def _balance(result: Result) -> Iterator[Finding]:
    """What the balanced cut brings our schedules on as many devices, at its best split size."""
    for cut in _fastest(result.select("step_time", cut="balanced", devices=STAGES), "strategy"):
        name, size = cut.case["strategy"], cut.case["split_size"]
        textbook = result.find("step_time", strategy=name, split_size=size, cut="after layer2", beside=None)
        if textbook:
            what = f"{name} at split size {size}, balanced{blocks(cut)},"
            yield Finding(formatting.versus(what, cut.over(textbook), "cut after layer2") + ".", Topic.BALANCED_CUT)


def _library(result: Result) -> Iterator[Finding]:
    """Ours beside torch.distributed.pipelining in the same rounds, at our best split size."""
    for ours in _fastest((r for r in result.select("step_time") if r.case.get("beside")), "strategy"):
        size = ours.case["split_size"]
        if theirs := result.find("step_time", strategy=ours.case["beside"], split_size=size):
            text = (
                f"Our {ours.case['strategy']} at split size {size} is {formatting.factor(theirs.over(ours))} as"
                " fast as torch.distributed.pipelining's on two ranks, in the same rounds."
            )
            yield Finding(text, Topic.LIBRARY_PIPELINE)


def _fastest(records: Iterable[Record], *axes: str) -> list[Record]:
    alike = by_key((tuple(record.case.get(axis) for axis in axes), record) for record in records)
    return [min(own, key=lambda record: record.median) for own in alike.values()]


def _fastest_pairs(result: Result) -> list[tuple[Record, Record]]:
    """The fastest step of each cut as it was measured, and the same step played."""
    pairs = {
        id(step): (step, played)
        for played in result.select("played_time")
        if (step := result.find("step_time", **played.case))
    }
    return [pairs[id(step)] for step in _fastest([step for step, _ in pairs.values()], "devices", "cut")]


def _timeline(result: Result) -> tuple[Record, Played] | None:
    """The fastest step that was also played, and its schedule as played in the round whose time is nearest the median.

    So the drawing ends at the time that is told, or near it.
    """
    pairs = sorted(_fastest_pairs(result), key=lambda pair: pair[0].median)
    if not pairs:
        return None
    step, told = pairs[0]
    every = [(p, i) for p, samples in enumerate(told.samples) for i in range(len(samples))]
    process, place = min(every, key=lambda at: abs(told.samples[at[0]][at[1]] - told.median))
    size, stages = step.integer("split_size"), range(step.integer("devices"))
    where = {axis: step.case[axis] for axis in ("devices", "cut")}

    def seconds(part: str, **own: int) -> list[float]:
        found = [result.find("stage_time", **where, **own, stage=stage, part=part) for stage in stages]
        return [r.samples[process][place] for r in found if r and _rounds(r) == _rounds(told)]

    forwards, both = (seconds(part, split_size=size) for part in ("forward", "forward and backward"))
    copies = seconds("copy to the next stage", split_size=size) or [0.0] * (len(stages) - 1)
    updates = seconds("update")
    if {len(forwards), len(both), len(copies) + 1, len(updates)} != {len(stages)}:
        return None
    schedule, num_micro = SCHEDULES[step.text("strategy")], step.integer("batch_size") // size
    return step, played_as_timed(schedule, forwards, both, copies, num_micro, updates)


def _rounds(record: Record) -> list[tuple[str, int]]:
    """Of each process, and how many."""
    return [(each.rounds_id, len(own)) for each, own in zip(record.telemetry, record.samples, strict=True)]


def _played(result: Result) -> Iterator[Finding]:
    """The fastest step of each cut beside its schedule: how long devices idle in either, and what it takes longer.

    What it takes longer has no place in the schedule, simulated from the stages' own times.
    """
    for measured, played in _fastest_pairs(result):
        ratio, where = measured.over(played), {axis: measured.case[axis] for axis in ("devices", "cut")}
        text = (
            f"{measured.case['strategy']} at split size {measured.case['split_size']}, {cut_name(measured)}:"
            f" {formatting.time(measured)} measured, {formatting.seconds(played.median)} simulated from stage"
            " times"
        )
        passes = result.select(
            "stage_time", **where, split_size=measured.case["split_size"], part="forward and backward"
        )
        if passes and (bubble := result.find("played_bubble", **played.case)):
            busy = sum(each.median for each in (*passes, *result.select("stage_time", **where, part="update")))
            idle = max(0.0, 1 - busy / (measured.integer("devices") * measured.median))
            text += (
                f"; devices idle {formatting.percent(idle)} of the time, {formatting.percent(bubble.median)} if played"
            )
        near = "within" if ratio.value <= 1 + CLOSE else "beyond"
        text += f". That is {formatting.factor(ratio)} the schedule's time, {near} {formatting.percent(CLOSE)} of it"
        if ratio.value > 1:
            rest = formatting.seconds(max(0.0, measured.median - played.median))
            text += f"; the rest, {rest}, is launching, waiting and what devices share"
        yield Finding(f"{text}.", Topic.PLAYED_PIPELINE)


def _textbook(result: Result, single: Record, runs: list[Record]) -> Iterator[Finding]:
    for best in sorted((r for r in runs if r.case["strategy"] == "textbook"), key=lambda r: r.median)[:1]:
        what = f"The textbook's pipeline, at its best split size {best.case['split_size']},"
        text = formatting.versus(what, best.over(single), "one device")
        if result.emulated:
            text += "; on CPU workers only its forward overlaps, since a CPU graph runs backward in one thread"
        yield Finding(f"{text}.", Topic.TEXTBOOK_PIPELINE)


def _order(result: Result) -> Iterator[Finding]:
    """Whether the pipeline is the fastest of what the tutorial compares and model parallelism the slowest, as there."""
    ordered = sorted((printed for printed, _ in tutorial_pairs(result)), key=lambda record: record.median)
    if len(ordered) < len(TUTORIAL):
        return
    fastest, *_, slowest = map(tutorial_name, ordered)
    if any(first.over(second).verdict != "faster" for first, second in pairwise(ordered)):
        text = "By the tutorial's own code, the three that it compares cannot all be told apart here."
    elif [record.case["strategy"] for record in ordered] == ["textbook", SINGLE.name, MODEL_PARALLEL.name]:
        text = f"As in the tutorial, {fastest} is the fastest, and {slowest} the slowest."
    else:
        text = "In the tutorial the pipeline is the fastest and model parallelism the slowest;"
        text += f" here {fastest} is the fastest and {slowest} the slowest."
    yield Finding(text, Topic.TUTORIALS_ORDER)


def _ideal(result: Result) -> Iterator[Finding]:
    if fit := fitted(result):
        error = formatting.percent(fit.held_out_error)
        text = (
            f"The ideal curve, fitted on every second split size of our GPipe, is off by at most {error} on the others"
        )
        if fit.held_out_error <= TRUSTED:
            text += f": a micro-batch costs {formatting.seconds(max(0.0, fit.overhead))} of overhead, and split size"
            text += f" {fit.best_split:.1f} is best."
        else:
            text += ", too much to predict the best split size."
        yield Finding(text, Topic.IDEAL_PIPELINE)


def published(result: Result) -> Iterator[Ours]:
    """The tutorial's pipeline by split size, by its own code and by ours, and the best size.

    Its three batches take three times as long as one.
    """
    spec = result.spec
    for timed, includes in INCLUDES.items() if spec["model"] == "resnet50" else ():
        single, plain = (result.find(timed, strategy=name) for name in LINES)
        steps = result.select(timed, strategy="textbook", beside=None)
        if not (single and plain and steps):
            continue
        settings = {"batch_size": spec["batch_size"], "image": [spec["image_size"]] * 2}
        best = min(steps, key=lambda record: record.median).integer("split_size")
        yield Ours(metric="best_split_size", value=best, gpus=2, settings=settings, includes=includes)
        for step in steps:
            found = {
                "time_pipelined": 3 * step.median,
                "speedup_vs_single_gpu": 100 * (single.median / step.median - 1),
                "speedup_vs_model_parallel": plain.median / step.median,
                "pipeline_fastest_of_three": float(step.median < min(single.median, plain.median)),
            }
            own = settings | {"split_size": step.integer("split_size")}
            yield from known(found, gpus=2, settings=own, includes=includes)


def nightly(result: Result) -> Iterator[Number]:
    """GPipe at the split size in the middle of the list: the best one may be another every night."""
    sizes = sorted(result.spec["split_sizes"])
    if record := result.find("step_time", strategy=FITTED, split_size=sizes[len(sizes) // 2], beside=None):
        yield Number(f"GPipe at split size {record.case['split_size']}", record)
