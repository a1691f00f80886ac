"""What does cutting a model over several devices cost, and how long does each device idle?

Time of the same minibatches on one device and cut over several. "balanced" cuts where the slowest stage is fastest, by
the blocks' own times. Then when each device computes (forward blue, backward orange, as long as its stage takes alone)
and when it waits (grey): with one minibatch at a time, only one device works. Whiskers are 95 % intervals.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import formatting
from scalecard.analysis.published_figures import Ours, Part
from scalecard.figures import charts, layout, points
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.records.strategies import MODEL_PARALLEL, SINGLE
from scalecard.report.sections import Finding, Number, Topic, known, not_measured

CUTS = ("after layer2", "balanced")
# Metrics of a step, and what each includes besides the work, as the tutorial's time does.
INCLUDES: Mapping[str, Sequence[Part]] = {"tutorial_time": ("inputs",), "step_time": ()}
# What the tutorial compares, in the order of its bars.
TUTORIAL = {MODEL_PARALLEL.name: "model parallelism", SINGLE.name: "one device", "textbook": "its pipeline"}


def plot(results: Sequence[Result]) -> Figure:
    """Time by strategy and cut; and when each device computes, by the cut with the most devices."""
    here = results[0]
    lanes = [cut for cut in _steps_of_cuts(here) if _stages(here, cut)]
    bars = {
        model: [
            points.timed(result, r, series="", x=cut_name(r) if "cut" in r.case else r.text("strategy"))
            for result in results
            for r in result.select("step_time", workload=model, stage=None)
        ]
        for model in (here.spec["model"], "toy")
    }
    figure, panels = layout.panels(2 + bool(lanes))
    for (model, shown), axes in zip(bars.items(), (panels[0], panels[-1]), strict=True):
        charts.bars(shown, axes, unit="s", xlabel="time", title=formatting.model_name(model))
    for cut in formatting.largest(lanes, "devices")[:1]:
        _draw_lanes(cut, _stages(here, cut), panels[1])
    return figure


def _draw_lanes(cut: Record, alone: Sequence[Record], axes: Axes) -> None:
    """One batch after another: forward through the stages, and backward through them in reverse.

    A stage's time alone is forward and backward together; a third of it is drawn as forward, which is its share of the
    operations. What the whole takes longer than all stages is drawn as idle at the end.
    """
    batches, shown = cut.integer("batches", 1), list[charts.LaneSpan]()
    at, every = 0.0, list(enumerate(record.median / batches for record in alone))
    for place, seconds, part in batches * [
        *((place, seconds / 3, "forward") for place, seconds in every),
        *((place, 2 * seconds / 3, "backward") for place, seconds in reversed(every)),
    ]:
        shown.append(charts.LaneSpan(place, part, at, seconds))
        at += seconds
    notes, xlabel = [f"idle {_idle(record, cut)}" for record in alone], f"time, cut {cut_name(cut)}"
    charts.lanes(shown, axes, until=cut.median, notes=notes, xlabel=xlabel, title="who computes when")


def _idle(stage: Record, cut: Record) -> str:
    return formatting.percent(max(0.0, 1 - stage.median / cut.median))


def findings(result: Result) -> list[Finding]:
    """One device against several, and the idle share of each."""
    single, cuts = result.find("step_time", workload=result.spec["model"], strategy=SINGLE.name), _steps_of_cuts(result)
    if not (single and cuts):
        return [not_measured(result, "step_time", "Not compared", "one device")]
    found = list[Finding]()
    for cut in cuts:
        ratio, alone = cut.over(single), _stages(result, cut)
        text = formatting.versus(f"Plain model parallelism, cut {cut_name(cut)},", ratio, "one device")
        if alone:
            text += f"; the devices idle {' and '.join(_idle(record, cut) for record in alone)} of the time"
        topic = Topic.OTHER_CUTS if found else Topic.MODEL_PARALLEL
        found.append(Finding(f"{text}.", topic, f"{ratio.value:.2f}x one device's time"))
        if times := [record.median for record in alone]:
            slowest, perfect = max(times), sum(times) / len(times)  # the same work, shared equally
            text = (
                f"Cut {cut_name(cut)}{blocks(cut)}: the stages take {', '.join(map(formatting.seconds, times))} alone,"
                f" and the slowest one {formatting.percent(slowest / perfect - 1)} more than perfect balance,"
                f" {formatting.seconds(perfect)} each: no pipeline over this cut can be more than"
                f" {single.median / slowest:.2f}x as fast as one device, and with perfect balance"
                f" {single.median / perfect:.2f}x."
            )
            found.append(Finding(text, Topic.STAGE_BALANCE))
    whole = result.find("peak_memory", strategy=SINGLE.name)
    halves = result.select("peak_memory", strategy=MODEL_PARALLEL.name, cut="after layer2")
    if whole and halves:
        peaks = " and ".join(formatting.count_bytes(record.median) for record in halves)
        peaks += f" on the two devices, against {formatting.count_bytes(whole.median)} on one"
        found.append(Finding(f"On top of parameters and inputs a step needs at most {peaks}.", Topic.STAGE_MEMORY))
    return [*found, *tutorial_finding(result)]


def tutorial_pairs(result: Result) -> list[tuple[Record, Record]]:
    """What the tutorial compares, by its own code and by ours; of its pipeline the fastest split size."""
    found = list[tuple[Record, Record]]()
    for strategy in TUTORIAL:
        printed = result.select("tutorial_time", strategy=strategy)
        fastest = min(printed, key=lambda record: record.median, default=None)
        if fastest and (ours := result.find("step_time", beside=None, **fastest.case)):
            found.append((fastest, ours))
    return found


def tutorial_finding(result: Result) -> Iterator[Finding]:
    """What the tutorial's own code takes beside ours, and what drawing and sending its inputs takes of that."""
    if not (pairs := tutorial_pairs(result)):
        return
    told = [
        f"{tutorial_name(one)} takes {formatting.seconds(one.median)}, {formatting.factor(one.over(ours))} our time"
        for one, ours in pairs
    ]
    text = f"As the tutorial prints it, with inputs drawn while the clock runs, {'; '.join(told)}."
    for one, ours in pairs:
        if one.case["strategy"] == SINGLE.name and one.over(ours).verdict == "slower":
            more = formatting.seconds((one.median - ours.median) / one.integer("batches", 1))
            text += (
                f" On one device that is {more} more per batch, for drawing it, sending it, and launching otherwise."
            )
    yield Finding(text, Topic.AS_PRINTED)


def tutorial_name(record: Record) -> str:
    """'one device', or 'its pipeline at split size 12'."""
    name = TUTORIAL[record.text("strategy")]
    return f"{name} at split size {record.case['split_size']}" if record.case["strategy"] == "textbook" else name


def cut_name(record: Record) -> str:
    """'after layer2, 2 devices'."""
    return f"{record.case.get('cut', CUTS[0])}, {record.case.get('devices', 2)} devices"


def blocks(record: Record) -> str:
    """' (blocks 0-7 | 8-17)', or '' if they are not known."""
    spans = [range(end - count, end) for end, count in zip(accumulate(record.blocks), record.blocks, strict=True)]
    named = " | ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)
    return f" (blocks {named})" if named else ""


def _steps_of_cuts(result: Result) -> list[Record]:
    """Model parallelism at every cut, but not of the toy."""
    return result.select("step_time", workload=result.spec["model"], strategy=MODEL_PARALLEL.name)


def _stages(result: Result, cut: Record) -> list[Record]:
    """Each stage alone; none if one of them is missing."""
    where = {axis: cut.case.get(axis) for axis in ("devices", "cut")}
    stages = range(cut.integer("devices", 2))
    found = [result.find("step_time", strategy="stage alone", stage=stage, **where) for stage in stages]
    return [record for record in found if record] if all(found) else []


def published(result: Result) -> Iterator[Ours]:
    """The tutorial's two times, and what the second takes longer: by its own code and by ours."""
    spec = result.spec
    if spec["model"] != "resnet50":
        return
    settings = {axis: spec[axis] for axis in ("batch_size", "batches")} | {"image": [spec["image_size"]] * 2}
    for timed, includes in INCLUDES.items():
        single, cut = (
            result.find(timed, workload="resnet50", **case)
            for case in ({"strategy": SINGLE.name}, {"strategy": MODEL_PARALLEL.name, "cut": CUTS[0], "devices": 2})
        )
        yield from known({"time_single_gpu": single.median if single else None}, settings=settings, includes=includes)
        if single and cut:
            found = {
                "time_model_parallel": cut.median,
                "model_parallel_slowdown": 100 * (cut.median / single.median - 1),
                "single_gpu_faster_than_model_parallel": float(single.median < cut.median),
            }
            yield from known(found, gpus=2, settings=settings, includes=includes)


def nightly(result: Result) -> Iterator[Number]:
    """The network on one device, and cut over two."""
    model = result.spec["model"]
    cases: dict[str, Case] = {name: {"strategy": name} for name in (SINGLE.name, MODEL_PARALLEL.name)}
    cases["model parallel, balanced"] = {"strategy": MODEL_PARALLEL.name, "cut": "balanced", "devices": 2}
    for name, case in cases.items():
        if record := result.find("step_time", workload=model, **case):
            yield Number(f"{formatting.model_name(model)}, {name}", record)
