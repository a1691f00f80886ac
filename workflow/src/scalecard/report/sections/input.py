"""Does loading keep up with training, and how many processes does it take?

What a loader alone makes per second over the number of its worker processes, and what one device trains on if a loader
feeds it, one panel per workload; bands are 95 % intervals. Dashed: what the device trains on per second if its data are
there already.
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from scalecard.analysis import by_key, formatting
from scalecard.analysis.loader_results import LoaderResults, changed, loader_results, workers
from scalecard.analysis.step_records import ONE, rate, time_per_unit
from scalecard.figures import charts, layout, points
from scalecard.progress import counted
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio
from scalecard.report.sections import Finding, Number, Topic, not_measured

EMULATED = " Loading and training share the cores here: a trial of the method on CPU workers, and no advice."
COPIES = {
    "non_blocking": "copied from pinned memory without waiting",
    "overlapped": "copied beside the step before",
}
MARGIN = 0.2  # of a worker, beside the first mark
BEHIND = ", at least: it cannot keep up, and what it had loaded before the clock started came for free"


def plot(results: Sequence[Result]) -> Figure:
    """The first platform's rates over workers, a panel per workload."""
    found = loader_results(results[0])
    figure, panels = layout.panels(len(found))
    for one, axes in zip(found, panels, strict=False):
        shown = [
            points.rated(results[0], r, r.integer("units"), series=series, x=workers(r))
            for series, records in (("loader alone", one.loaders), ("one device, fed", one.steps))
            for r in records
        ]
        unit, resident = one.fastest.case["unit"], one.resident()
        across = "worker processes of the loader"
        charts.curves(shown, axes, unit=f"{unit}/s", xlabel=across, ylabel=f"{unit} per second", title=one.name)
        if resident:
            charts.limit(axes, rate(resident), "one device, resident")
        rates = [rate(record) for record in (*one.loaders, *one.steps, *([resident] if resident else []))]
        charts.from_zero_or_log(axes, rates, "")
        counts = [workers(record) for record in one.loaders]
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_xlim(-MARGIN, 1.2 * max(counts) + MARGIN)
        charts.ticks(axes, counts)
    if not found:
        charts.nothing(panels[0])
    return figure


def findings(result: Result) -> list[Finding]:
    """How many devices the loader feeds, what a step takes that it feeds, and which settings matter."""
    found = [
        finding
        for one in loader_results(result)
        for finding in (_feeds(one), *_steps(one), *_copies(one), *_settings(one))
    ]
    return found or [not_measured(result, "load_time", "Not loaded", "not loaded")]


def _feeds(one: LoaderResults) -> Finding:
    feeds, number = one.devices_fed.interval, _devices(one.devices_fed.value)
    between = f" ({_devices(feeds.low)} to {_devices(feeds.high)})" if feeds else ""
    text = (
        f"{one.name}: with {_by(one.fastest)} the loader makes {_rate(one.fastest)}, the most that was measured: as"
        f" much as {number}{between} devices of this model train on.{_enough(one)}{EMULATED * one.result.emulated}"
    )
    return Finding(text, Topic.LOADER_RATE, f"{one.name}: feeds {number} devices")


def _devices(number: float) -> str:
    return f"{number:.2g}" if number < 10 else formatting.count(round(number))


def _enough(one: LoaderResults) -> str:
    if one.enough == 0:
        return " For one device no worker is needed: the training's own process reads fast enough."
    if one.enough is not None:
        return f" For one device {counted(one.enough, 'worker')} {'is' if one.enough == 1 else 'are'} enough."
    if any(map(one.keeps_up, one.usual)):
        return " Alone it keeps up with one device, but a step that it feeds takes longer."
    if one.devices_fed.interval and one.devices_fed.interval.high < 1:
        return " No number of workers that was measured keeps up with one device."
    return " Whether it keeps up with one device cannot be said."


def _rate(record: Record) -> str:
    """'3,100 (3,050 to 3,150) samples/s'."""
    amount, bounds, count = record.integer("units"), record.interval, formatting.count
    between = f" ({count(amount / bounds.high)} to {count(amount / bounds.low)})" if bounds else ""
    return f"{count(rate(record))}{between} {record.case['unit']}/s"


def _by(record: Record) -> str:
    return counted(workers(record), "worker") if workers(record) else "no worker process"


def _steps(one: LoaderResults) -> Iterator[Finding]:
    """What a step takes that is fed as PyTorch does unless told otherwise, and with the workers that it takes."""
    resident = one.resident("settings")
    if resident is None:
        return
    for step, *_ in by_key((workers(step), step) for step in one.steps).values():
        ratio, by = step.over(resident), f"by {_by(step)}" if workers(step) else "without workers, as by default"
        text = formatting.versus(f"{one.name}: fed {by}, a step", ratio, "one on resident data")
        behind = workers(step) and ratio.verdict == "slower" and one.devices_fed.value < 1
        yield Finding(f"{text}{BEHIND if behind else ''}.", Topic.FED_STEPS)


def _copies(one: LoaderResults) -> Iterator[Finding]:
    """Of GPUs: whether copies that wait, or that overlap, matter to a step."""
    copied = {step.text("copy"): step for step in one.steps if step.case.get("copy") and workers(step)}
    if base := copied.get("blocking"):
        texts = [
            formatting.versus(f"{name}, a step", copied[copy].over(base), "with copies that wait")
            for copy, name in COPIES.items()
            if copy in copied
        ]
        yield Finding(f"{one.name}: {'; '.join(texts)}.", Topic.FED_COPIES)


def _settings(one: LoaderResults) -> Iterator[Finding]:
    """Those that change what a loader makes, and by how much; the others by name."""
    if len(one.settings) < 2:
        return
    usual, *others = one.settings
    ratios = [(record, time_per_unit(record, usual)) for record in others]
    matter = [_setting(record, usual, ratio) for record, ratio in ratios if ratio.verdict in ("faster", "slower")]
    rest = [_named(record, usual) for record, ratio in ratios if ratio.verdict not in ("faster", "slower")]
    if rest:
        matter.append(f"what is loaded {' or '.join(rest)} cannot be told from the usual")
    yield Finding(f"{one.name}, a loader with {_by(usual)}: {'; '.join(matter)}.", Topic.LOADER_SETTINGS)


def _named(record: Record, usual: Record) -> str:
    return {
        "prefetch": f"with {record.case.get('prefetch')} batches ahead per worker",
        "persistent": "with workers that are started for every epoch",
        "memory": f"in {record.case['memory']} memory",
        "batch_size": f"in batches of {record.case['batch_size']}",
    }[changed(record, usual)]


def _setting(record: Record, usual: Record, ratio: Ratio) -> str:
    if changed(record, usual) == "persistent" and ratio.value > 1:
        more = formatting.seconds(record.integer("batches") * (record.median - usual.median))
        return f"starting its workers for every epoch instead of once takes {more} per epoch"
    one = ONE[record.text("unit")]
    return formatting.versus(f"a {one} {_named(record, usual)}", ratio, f"one {_named(usual, record)}")


def nightly(result: Result) -> Iterator[Number]:
    """What the loader makes with the most workers, and a step on resident data."""
    for one in loader_results(result):
        most = one.loaders[-1]
        yield Number(f"{one.name}, {_by(most)}", most, most.integer("units"), f"{most.case['unit']}/s")
