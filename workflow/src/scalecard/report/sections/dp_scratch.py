"""Does data parallelism written by hand train faster on more devices, and as well?

Left: how many times as fast an epoch is as on one device, at the same batch (strong scaling), with 95 % intervals;
dotted is as many times as there are devices. Right: test accuracy after each epoch on each number of devices; the
curves should coincide, because the devices only share the work. With one device there is the accuracy alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from scalecard.analysis import formatting
from scalecard.analysis.published_figures import Ours
from scalecard.figures import charts, points
from scalecard.records.record import Result
from scalecard.report.sections import Finding, Number, Topic, not_measured, published_epochs


def plot(results: Sequence[Result]) -> Figure:
    """Speed-up by devices beside the ideal; accuracy by epoch, on this platform."""
    shown = [
        points.compared(result, r, formatting.speedup(r, single), series="measured", x=r.integer("devices"))
        for result in results
        if (single := result.find("epoch_time", devices=1))
        for r in result.select("epoch_time")
    ]
    counts = sorted({float(point.x) for point in shown})
    figure, panels = charts.panels(1 + (len(counts) > 1))
    if len(counts) > 1:
        charts.curves(shown, panels[0], unit="x")
        charts.ideal(panels[0], counts, counts)
        panels[0].set(xlabel="devices", ylabel="speed-up over one device", ylim=(0, None))
        panels[0].set(title="how many times as fast")
        charts.ticks(panels[0], counts)
    charts.accuracies(results[0], formatting.by_devices(results[0].select("accuracy"), "device"), panels[-1])
    panels[-1].set(title="accuracy after each epoch")
    return figure


def findings(result: Result) -> list[Finding]:
    """The speed-up on N devices, and whether the accuracy is the same."""
    single = result.find("epoch_time", devices=1)
    most = formatting.largest(result.select("epoch_time"), "devices")
    if single is None or not most or most[0] is single:
        return [*_alone(result), not_measured(result, "epoch_time", "Not compared", "one device")]
    count = most[0].case["devices"]
    gain = formatting.speedup(most[0], single)
    text = (
        f"Data parallelism from scratch trains LeNet {formatting.factor(gain)} as fast on {count} devices as on one:"
        f" {formatting.time(most[0])} per epoch instead of {formatting.time(single)}."
    )
    found = [Finding(text=text, headline=f"{gain.value:.2f}x on {count} devices", topic=Topic.FROM_SCRATCH)]
    one, many = result.find("accuracy", devices=1), result.find("accuracy", devices=count)
    if one and many:
        found.append(Finding(text=f"{formatting.accuracies(one, many, 'device')}.", topic=Topic.ACCURACY))
    return found


def _alone(result: Result) -> Iterator[Finding]:
    single, accuracy = (result.find(metric, devices=1) for metric in ("epoch_time", "accuracy"))
    if single and accuracy:
        reached = formatting.percent(accuracy.samples[-1][-1])
        text = f"LeNet trains an epoch in {formatting.time(single)} on one device, and its last one ends at {reached}."
        yield Finding(text=text, headline=f"{formatting.time(single)} per epoch", topic=Topic.ACCURACY)


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
    for record in formatting.largest(result.select("epoch_time"), "devices"):
        yield Number(label=f"epoch of LeNet on {record.case['devices']} devices", record=record)
