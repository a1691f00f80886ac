"""Which way to split a model over devices is the fastest, which needs the least memory, and which cannot be used?

Time of a step of every strategy on the most devices, one panel per workload, with the batch of one device shared by
all; the dotted line is one device alone. Whiskers are 95 % intervals. Of one device alone: its rate over the size of
the batch. With GPUs, beside it: what the fullest one needs memory for in the same steps; the black mark is what
formulas predict, without the rest.
"""

import math
import statistics
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import formatting, limits, step_records
from scalecard.analysis.published_figures import Ours
from scalecard.analysis.strategy_choice import precision, recipe, workloads
from scalecard.figures import charts, layout, points
from scalecard.records.axes import MEMORY
from scalecard.records.record import Record, Result
from scalecard.records.strategies import DATA_PARALLEL, DDP, FSDP_GRADIENTS, FSDP_PARAMETERS
from scalecard.report.sections import Finding, Number, Topic, known, not_measured
from scalecard.report.table import EMPTY, Cell, Table

# What torchtitan published, as docs/own-model.md has it for config.yaml, and its strategies.
LLAMA = {"batch_size": 2, "sequence": 8192, "layers": 32, "width": 4096}
SHARDED = (FSDP_GRADIENTS.name, FSDP_PARAMETERS.name)
OPTIMIZERS = {"plain_sgd": "plain SGD", "sgd": "SGD with momentum", "adamw": "AdamW", "own": "its own optimiser"}
RECOMPUTED = {"none": [], "blocks": ["blocks recomputed"], "selective": ["selectively recomputed"]}
# Gain: of strong scaling, how many times as fast as one device; of weak scaling, the rate over one device's. MFU, model
# FLOPs utilisation: the operations that the model needs per sample or token, times the rate, over the devices' dense
# peak. Source: Chowdhery et al., PaLM (2022), appendix B.
MEANINGS = {
    "Gain": "the rate over one device's",
    "MFU": "the operations that the model needs, over the devices' dense peak in the format of its products",
    "Memory": "of the device that needs the most",
    "Largest batch": "samples on each device, right to a sixteenth",
    "Launching": "the share of a step in which work is still submitted",
}


def plot(results: Sequence[Result]) -> Figure:
    """Time of a step by strategy, a panel per workload; on one device, rates by batch."""
    here, names = results[0], workloads(results[0])
    if not any(record.integer("devices", 1) > 1 for result in results for record in result.select("step_time")):
        return _rates_of_one_device(results, names)
    # Strong scaling on the most devices; a step of one device does as much.
    shown = [
        [points.timed(result, r, series="", x=_named(r)) for result in results for r in _steps_on_most(result, name)]
        for name in names
    ]
    needs = [  # steps whose memory is known by kind
        [step for step in _steps_on_most(here, name) if step_records.memory_by_kind(here, step)[0]] for name in names
    ]
    each = 2 if any(needs) else 1  # panels of a workload, side by side
    figure, panels = layout.panels(each * len(names))
    for name, steps, axes in zip(names, needs, panels[1::2], strict=True) if each == 2 else ():
        _draw_memory(here, steps, axes)
        axes.set_title(f"{name}, the fullest device")
    for name, own, axes in zip(names or [""], shown or [[]], panels[::each], strict=True):
        charts.bars(own, axes, unit="s", xlabel="time of a step")
        single = step_records.single(here, name)
        if single and len(results) == 1:  # other platforms have one of their own
            charts.mark_at(axes, single.median, "one device")
        axes.set_title(_shared_recipe(results, name) if name else "")
    return figure


def _shared_recipe(results: Sequence[Result], workload: str) -> str:
    """Of several platforms, which need not have trained it alike."""
    found = {with_recipe(result, workload) for result in results if workload in workloads(result)}
    return found.pop() if len(found) == 1 else f"{workload}, trained by recipes that differ"


def with_recipe(result: Result, workload: str) -> str:
    """A workload and how it was trained: 'gpt, AdamW in bf16, 4 micro-batches, clipped'."""
    found = recipe(result, workload)
    words = in_words(precision(result, workload), found.get("checkpointing", "none"))
    count, clipped = found.get("accumulate", 1), ", clipped" if found.get("clip") else ""
    added = f", {count} micro-batches" if count > 1 else ""
    added += ", compiled" if found.get("compile") else ""
    return f"{workload}, {OPTIMIZERS[found.get('optimizer', 'plain_sgd')]} in {words}{added}{clipped}"


def in_words(precision: str, recomputed: str) -> str:
    """'bf16', or 'float32, blocks recomputed'."""
    return ", ".join([precision, *RECOMPUTED[recomputed]])


def _rates_of_one_device(results: Sequence[Result], names: Sequence[str]) -> Figure:
    figure, panels = layout.panels(len(names))
    for name, axes in zip(names, panels, strict=False):
        records = [(result, r) for result in results for r in result.select("local_time", workload=name)]
        shown = [
            points.rated(result, r, r.integer("units"), series=name, x=r.integer("batch_size")) for result, r in records
        ]
        unit = f"{records[0][1].text('unit')}/s" if records else ""
        charts.curves(shown, axes, unit=unit, named=False, xlabel="samples in a batch", ylabel="per second")
        axes.set(xscale="log", ylim=(0, None))
        charts.ticks(axes, charts.numbers(shown))
        axes.set_title(f"{_shared_recipe(results, name)}, one device")
    return figure


def _named(step: Record) -> str:
    return step.text("strategy") + formatting.over_nodes(step.integer("nodes", 0))


def _steps_on_most(result: Result, workload: str) -> list[Record]:
    """The fastest first."""
    most = max((record.integer("devices") for record in _all(result, workload)), default=1)
    records = [r for r in _all(result, workload, scaling="strong", devices=most) if r.samples]
    return sorted(records, key=lambda record: record.median)


def _draw_memory(result: Result, steps: Sequence[Record], axes: Axes) -> None:
    if not steps:
        charts.nothing(axes)
        return
    found = {_named(step): step_records.memory_by_kind(result, step) for step in steps}
    shown = [
        points.timed(result, measured[kind], series=name, x=kind)
        for kind in MEMORY
        for name, (measured, _) in found.items()
        if kind in measured
    ]
    charts.stacks(shown, axes, unit="B")
    predicted = {row: own for row, (_, own) in enumerate(found.values()) if "activations" in own}
    charts.mark_rows(axes, {row: sum(each.median for each in own.values()) for row, own in predicted.items()})
    axes.set(xlabel="memory")


def _all(result: Result, workload: str, **case: str | int) -> list[Record]:
    return [r for r in result.select("step_time", workload=workload, **case) if r.case.get("strategy")]


def findings(result: Result) -> list[Finding]:
    """Of every workload, the fastest strategy against one device, and the runner-up."""
    found = [finding for name in workloads(result) for finding in _of_workload(result, name)]
    return found or [not_measured(result, "step_time", "Not compared", "one device")]


def _of_workload(result: Result, workload: str) -> Iterator[Finding]:
    single = step_records.single(result, workload)
    several = [r for r in _all(result, workload, scaling="strong") if r.integer("devices") > 1]
    if not several:
        yield from _alone(result, workload)
        return
    best, *others = sorted(formatting.largest(several, "devices"), key=lambda r: r.median)
    most = best.integer("devices")
    headline = f"{workload}: {best.case['strategy']}"
    name = f"{headline}, the fastest on {most} devices,"
    runner_up = "; " + formatting.versus(others[0].text("strategy"), others[0].over(best), "it") if others else ""
    if single is None:
        text = f"{name} takes {formatting.time(best)} for a step; one device alone was not timed{runner_up}."
        yield Finding(text, Topic.BEST_STRATEGY, headline)
    else:
        headline += f", {formatting.factor(formatting.speedup(best, single))}"
        text = f"{formatting.versus(name, best.over(single), 'one device')}{runner_up}."
        yield Finding(text, Topic.BEST_STRATEGY, headline)
        if slower := ", ".join(r.text("strategy") for r in (best, *others) if r.over(single).verdict == "slower"):
            text = f"{workload}: with the same batch on {most} devices, {slower} take longer than one device."
            yield Finding(text, Topic.SLOWER_STRATEGIES)
    yield from _least_memory(result, workload, most)
    yield from _of_the_tutorials(result, workload, most)


def _of_the_tutorials(result: Result, workload: str, devices: int) -> Iterator[Finding]:
    """What they say: one device that holds the model is the most efficient, and DDP is faster than DataParallel."""
    single = step_records.single(result, workload)
    several = [r for r in _all(result, workload) if r.integer("devices") > 1]
    if single and several:
        best = max(several, key=lambda step: step_records.rate(step) / step.integer("devices"))
        work = best.integer("units") / (best.integer("devices") * single.integer("units"))
        each = formatting.scaled(formatting.speedup(best, single), work)
        ends = {"slower": ", and it is.", "faster": "; here it is not."}
        text = (
            f"{workload}: of several devices each trains at most {formatting.share(each)} of what one does alone, by"
            f" {best.text('strategy')} on {best.case['devices']} with {best.text('scaling')} scaling. The tutorials say"
            " that one is the most efficient if it holds the model"
        )
        text += ends.get(formatting.inverse(each).verdict, "; here there is no measurable difference.")
        yield Finding(text, Topic.ONE_IS_MOST_EFFICIENT)
    threads, processes = (
        result.find("step_time", workload=workload, strategy=kind.name, scaling="strong", devices=devices)
        for kind in (DATA_PARALLEL, DDP)
    )
    if threads and processes:
        text = formatting.versus(f"{workload}: nn.DataParallel on {devices} devices", threads.over(processes), "DDP")
        cause = ". The tutorials' reasons: its threads share Python's lock, and it sends the model in every step"
        text += cause if threads.over(processes).verdict == "slower" else ""
        yield Finding(f"{text}.", Topic.THREADS_OR_PROCESSES)


def _alone(result: Result, workload: str) -> Iterator[Finding]:
    """What one device reaches, and what of it is left with a single sample."""
    whole, one = step_records.single(result, workload), result.find("local_time", workload=workload, batch_size=1)
    if whole and one:
        left = formatting.percent(step_records.rate(one) / step_records.rate(whole))
        largest = result.find("largest_batch", workload=workload)
        text = (
            f"{workload}: one device trains {formatting.rate(whole, whole.integer('units'))} {whole.text('unit')}/s"
            f" with a batch of {whole.integer('batch_size')}; a single sample per step leaves {left} of that"
            f"{f', and at most {largest.median:g} samples fit' if largest else ''}."
        )
        yield Finding(text, Topic.BEST_STRATEGY, "one device")


def _least_memory(result: Result, workload: str, devices: int) -> Iterator[Finding]:
    records = result.select("peak_memory", workload=workload, devices=devices, scaling="strong")
    measured = sorted((record for record in records if record.samples), key=lambda record: record.median)
    if len(measured) > 1:
        least, most = measured[0], measured[-1]
        used, predicted = (own.get("activations") for own in step_records.memory_by_kind(result, most))
        activations = ""
        if used and used.median:
            activations = f", of which {formatting.percent(used.median / most.median)} are activations"
            if predicted:
                off = math.ceil(100 * abs(predicted.median / used.median - 1)) / 100
                activations += f", predicted within {formatting.percent(off)}"
        text = (
            f"{workload}: on {devices} devices {least.case['strategy']} needs the least memory,"
            f" {formatting.count_bytes(least.median)} on its fullest device; {most.case['strategy']} needs the most,"
            f" {formatting.count_bytes(most.median)}{activations}."
        )
        yield Finding(text, Topic.LEAST_MEMORY)


def overview(result: Result) -> Table:
    """A row for each strategy that was timed, the fastest of a workload and number of devices first."""
    timed = [record for record in result.select("step_time") if record.samples]
    order = sorted(timed, key=lambda r: (r.text("workload"), r.integer("devices"), r.text("scaling"), r.median))
    return Table.of("Strategies", [_row(result, record) for record in order]).filled().explained(MEANINGS)


def published(result: Result) -> Iterator[Ours]:
    """Of Llama 3.1 8B with as many samples on each of 8 GPUs, the faster FSDP2: what one GPU reaches."""
    for name, block in result.spec.get("workloads", {}).items():
        steps = _all(result, name, scaling="weak", devices=8, precision="bf16")
        sharded = [step for step in steps if step.text("strategy") in SHARDED and "nodes" not in step.case]
        if sharded and block.items() >= LLAMA.items():
            best, own = max(sharded, key=step_records.rate), recipe(result, name)
            settings = {"checkpointing": own.get("checkpointing", "none"), "compile": own.get("compile", False)}
            found = {"tokens_per_second_per_gpu": step_records.rate(best) / 8, "mfu": _mfu(result, best)}
            yield from known(found, gpus=8, settings=settings)


def _row(result: Result, record: Record) -> dict[str, str | Cell]:
    alone, devices, gain = step_records.single(result, record.text("workload")), record.integer("devices"), EMPTY
    if alone and alone.samples and alone is not record:
        times = step_records.gain_per_unit(record, alone).value
        gain = Cell(f"{times:.2f}x", times)
    return {
        "Workload": record.text("workload"),
        "Strategy": record.text("strategy"),
        "Devices": devices_cell(devices, record.integer("nodes", 1)),
        "Scaling": record.text("scaling") if devices > 1 else "",
        **step_cells(result, record, gain),
    }


def step_cells(result: Result, record: Record, gain: Cell) -> dict[str, str | Cell]:
    """What is known of a step, and its gain."""
    rate, mfu, batch = step_records.rate(record), _mfu(result, record), step_records.largest_batch(result, record)
    return {
        "Step": Cell(formatting.seconds(record.median), record.median),
        "Gain": gain,
        "Rate": Cell(f"{formatting.count(rate)} {record.text('unit')}/s", rate),
        "MFU": Cell(formatting.percent(mfu, 1), mfu) if mfu else EMPTY,
        "Memory": memory(result, record),
        "Largest batch": Cell(f"{batch.median:.0f}{' or more' if batch.note else ''}", batch.median)
        if batch
        else EMPTY,
        "Energy": energy(record),
        "Launching": _launching(result, record),
    }


def _mfu(result: Result, record: Record) -> float | None:
    each = step_records.operations_each(result, record.text("workload"))
    peak = limits.of_products(result, step_records.dtype_of(record))
    rate, devices = step_records.rate(record), record.integer("devices")
    return each * rate / (devices * peak.rate * 1e12) if each and peak else None


def devices_cell(devices: int, nodes: int) -> Cell:
    """'8', or '8 on 2 nodes', which comes after it."""
    return Cell(f"{devices} on {nodes} nodes" if nodes > 1 else str(devices), devices + nodes / 1e3)


def memory(result: Result, record: Record) -> Cell:
    """Memory of the fullest device; an empty cell without GPUs."""
    found = step_records.memory(result, record)
    return Cell(formatting.count_bytes(found.median), found.median) if found and found.samples else EMPTY


def energy(record: Record) -> Cell:
    """Per sample or token."""
    joules = [entry.joules for entry in record.telemetry if entry.joules is not None]
    if not joules:
        return EMPTY
    each = statistics.median(joules) / record.integer("units")
    return Cell(f"{each:.3g} J/{step_records.ONE[record.text('unit')]}", each)


def _launching(result: Result, record: Record) -> Cell:
    """Only of GPUs: a CPU rank does the work in the call that submits it."""
    enqueued = [entry.enqueue for entry in record.telemetry if entry.enqueue]
    if not enqueued or result.emulated:
        return EMPTY
    share = min(1.0, statistics.median(enqueued) / record.median)
    return Cell(formatting.percent(share), share)


def nightly(result: Result) -> Iterator[Number]:
    """DDP on the most devices."""
    for name in workloads(result):
        for record in formatting.largest(_all(result, name, strategy=DDP.name, scaling="strong"), "devices")[:1]:
            yield Number(f"{name}, {DDP.name}", record)
