"""Does data parallelism written by hand train faster on more devices, and as well?

Left: how many times as fast an epoch is as on one device, at the same batch (strong scaling), with 95 % intervals;
dotted is as many times as there are devices. Right: test accuracy after each epoch on each number of devices; the
curves should coincide, because the devices only share the work. With one device there is the accuracy alone. Below: an
epoch as the textbook prints it, with its DataLoader and a synchronisation after every batch, one with the latter alone,
and ours, and one of a module or, on several devices, by nn.DataParallel.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from scalecard.analysis import formatting
from scalecard.analysis.learning import compare_learning
from scalecard.analysis.published_figures import Ours
from scalecard.analysis.textbook_epochs import EpochParts, epoch_parts
from scalecard.figures import charts, layout, points
from scalecard.figures.points import Point
from scalecard.progress import counted
from scalecard.records.axes import WAYS, Way
from scalecard.records.record import Result
from scalecard.report.sections import (
    Finding,
    Number,
    Topic,
    accuracies,
    not_measured,
    published_epochs,
)

WAY_NAMES: dict[Way, str] = {"loaded": "as printed", "resident": "ours"}


def plot(results: Sequence[Result]) -> Figure:
    """Speed-up by devices beside the ideal; on this platform accuracy by epoch, and epochs as printed and as ours."""
    here = results[0]
    shown = [
        points.compared(result, r, formatting.speedup(r, single), series="measured", x=r.integer("devices"))
        for result in results
        if (single := result.find("epoch_time", devices=1))
        for r in result.select("epoch_time", way=None)
    ]
    parts, counts = epochs_as_printed(here), charts.numbers(shown)
    figure, panels = layout.panels(1 + (len(counts) > 1) + bool(parts))
    if len(counts) > 1:
        charts.curves(shown, panels[0], unit="x", ticked=True, xlabel="devices", ylabel="speed-up over one device")
        charts.ideal(panels[0], counts, counts)
        panels[0].set(title="how many times as fast", ylim=(0, None))
    curves = formatting.by_devices(here.select("accuracy", way=None), "device")
    charts.accuracies(here, curves, panels[int(len(counts) > 1)], title="accuracy after each epoch")
    if parts:
        charts.bars(parts, panels[-1], unit="s", xlabel="time of an epoch")
        panels[-1].set(title="as the textbook prints it, and ours")
    return figure


def epochs_as_printed(result: Result) -> list[Point]:
    """Times of the textbook's epochs and of those that took turns with them, by way and number of devices."""
    return [
        points.timed(result, record, series="", x=f"{WAY_NAMES.get(way, way)}, {counted(devices, 'device')}")
        for devices in result.spec.get("as_printed", ())
        for way in WAYS
        for record in result.select("epoch_time", way=way, devices=devices)
    ]


def findings(result: Result) -> list[Finding]:
    """The speed-up on N devices, whether the accuracy is the same, and what the textbook's own epoch spends."""
    return [*_speed(result), *map(_as_printed, epoch_parts(result)), *_by_hand(result)]


def _speed(result: Result) -> Iterator[Finding]:
    single, accuracy = (result.find(metric, devices=1) for metric in ("epoch_time", "accuracy"))
    most = formatting.largest(result.select("epoch_time", way=None), "devices")
    if single is None or not most or most[0] is single:
        if single and accuracy:
            took, reached = formatting.time(single), formatting.percent(accuracy.samples[-1][-1])
            text = f"LeNet trains an epoch in {took} on one device, and its last one ends at {reached}."
            yield Finding(text, Topic.ACCURACY, f"{took} per epoch")
        yield not_measured(result, "epoch_time", "Not compared", "one device")
        return
    count, gain = most[0].case["devices"], formatting.speedup(most[0], single)
    text = (
        f"Data parallelism from scratch trains LeNet {formatting.factor(gain)} as fast on {count} devices as on one:"
        f" {formatting.time(most[0])} per epoch instead of {formatting.time(single)}."
    )
    yield Finding(text, Topic.FROM_SCRATCH, f"{gain.value:.2f}x on {count} devices")
    for found in compare_learning(result, result.select("accuracy", way=None)):
        yield accuracies(found, "device")


def _as_printed(parts: EpochParts) -> Finding:
    """The distance between the textbook's epoch and ours, taken apart."""
    printed, ours = map(formatting.time, (parts.printed, parts.resident))
    loads, waits = (
        slower.over(faster).verdict == "slower"
        for slower, faster in ((parts.printed, parts.synchronised), (parts.synchronised, parts.resident))
    )
    shares = [f"{formatting.share(parts.loading)} of it is what loading adds"] if loads else []
    if loads and waits:
        shares.append(f"{formatting.percent(parts.synchronising)} the synchronisation after every batch")
        shares.append(f"and {formatting.share(parts.training)} the training")
    text = (
        f"Loaded and synchronised as the textbook prints it, an epoch on {counted(parts.devices, 'device')} takes"
        f" {printed} instead of {ours}{': ' if shares else ''}{', '.join(shares)}."
    )
    if unseen := [
        what for what, seen in {"loading": loads, "synchronising after every batch": waits}.items() if not seen
    ]:
        text += f" What {' or '.join(unseen)} adds cannot be told."
    return Finding(text, Topic.AS_PRINTED)


def _by_hand(result: Result) -> Iterator[Finding]:
    """The hand-written way beside the framework's, in the same turns: on the most devices, which may be one."""
    for concise in formatting.largest(result.select("epoch_time", way="concise"), "devices"):
        count = concise.integer("devices")
        if ours := result.find("epoch_time", devices=count, way="resident"):
            by_hand, framework = "written by hand", "a module with PyTorch's optimizer"
            if count > 1:
                by_hand, framework = f"by hand-written data parallelism on {count} devices", "nn.DataParallel"
            told = formatting.versus(f"An epoch of LeNet {by_hand}", ours.over(concise), f"one of {framework}")
            yield Finding(f"{told}: {formatting.time(ours)} and {formatting.time(concise)}.", Topic.BY_HAND)


def published(result: Result) -> Iterator[Ours]:
    """Epochs, accuracies, and the speed-up of two devices at the same batch."""
    own = list(published_epochs(result))
    yield from own
    times = {(each.gpus, tuple(each.includes)): each for each in own if each.metric == "sec_per_epoch"}
    for (count, includes), two in times.items():
        if count == 2 and (one := times.get((1, includes))):
            yield replace(two, metric="speedup_2gpu", value=one.value / two.value)


def nightly(result: Result) -> Iterator[Number]:
    """An epoch on most devices."""
    for record in formatting.largest(result.select("epoch_time", way=None), "devices"):
        yield Number(f"epoch of LeNet on {record.case['devices']} devices", record)
