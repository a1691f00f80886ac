"""What does nn.DataParallel bring, and is it the devices that cost the textbook's pair its accuracy?

First: the time of an epoch for every batch size (beside other platforms the first) and number of devices. Then test
accuracy after each epoch on each number of devices, a panel for each batch size and learning rate; on one device
alone, all of them in one. The textbook's pair changes batch, learning rate and devices together; here each is changed
alone. Then its two runs, and what lies between them, one change at a time. Last: an epoch as the textbook prints it,
with its DataLoader, and ours, whose images are resident.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from scalecard.analysis import by_key, formatting, learning
from scalecard.analysis.published_figures import Ours
from scalecard.analysis.textbook_epochs import (
    Cause,
    EpochParts,
    Step,
    causes,
    epoch_parts,
    growing_with_devices,
    textbook_runs,
)
from scalecard.figures import charts, layout, points
from scalecard.progress import counted
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.report.sections import (
    TRAIN_IMAGES,
    Finding,
    Number,
    Topic,
    not_measured,
    published_epochs,
)
from scalecard.report.sections.dp_scratch import epochs_as_printed

# The textbook's: on one device, and on two.
PAIR: tuple[Case, Case] = ({"batch_size": 256, "lr": 0.1}, {"batch_size": 512, "lr": 0.2})

RUNS = ("first run", "all layers initialised", "second run's net", "second run")  # as textbook_runs() has them


def plot(results: Sequence[Result]) -> Figure:
    """Epoch times by devices; on this platform a panel with the accuracies of each setting, and epochs as printed."""
    here = results[0]
    curves = _curves(here)
    # Of each platform at the first learning rate, which does not change the time, and of several at the first batch.
    shown = [
        points.timed(result, r, series="", x=f"{r.case['devices']} dev., batch {r.case['batch_size']}")
        for result in results
        for r in result.select("epoch_time", lr=result.spec["lrs"][0], way=None)
        if r.case["batch_size"] in result.spec["batch_sizes"][: 1 if len(results) > 1 else None]
    ]
    printed = epochs_as_printed(here)
    figure, (left, *others) = layout.panels(1 + len(curves) + bool(printed))
    charts.bars(shown, left, unit="s", xlabel="time of an epoch", title="epoch")
    for (title, named), axes in zip(curves.items(), others, strict=False):
        charts.accuracies(here, named, axes, title=title)
    if printed:
        charts.bars(
            printed, others[-1], unit="s", xlabel="time of an epoch", title="as the textbook prints it, and ours"
        )
    return figure


def _curves(result: Result) -> dict[str, dict[str, Record]]:
    """By panel and name: a panel for each setting or, where only one device trained, one for all; the two runs."""
    spec, grid = result.spec, result.select("accuracy", start=None)
    own = [r for r in grid if r.case["batch_size"] in spec["batch_sizes"] and r.case["lr"] in spec["lrs"]]
    settings = by_key((f"batch {r.case['batch_size']}, lr {r.case['lr']:g}", r) for r in own)
    panels = {setting: formatting.by_devices(curves, "device") for setting, curves in settings.items()}
    if settings and all(len(curves) == 1 for curves in settings.values()):
        panels = {"accuracy on one device": {setting: curve for setting, (curve,) in settings.items()}}
    if len(runs := textbook_runs(result)) == len(RUNS):
        panels["the textbook's two runs, on one device"] = dict(zip(RUNS, runs, strict=True))
    return panels


def findings(result: Result) -> list[Finding]:
    """The speed-up of the textbook's pair and of strong scaling; what batch and rate do to the accuracy."""
    if not result.select("epoch_time", devices=1):
        return [not_measured(result, "epoch_time", "Not measured", "not measured")]
    found = [*_speed(result)]
    if skipped := formatting.reason(result, "epoch_time"):
        found.append(Finding(f"More than one device was not measured: {skipped}.", Topic.PARTLY_MEASURED))
    return [*found, *_accuracy(result), *_growing(result), *map(_as_printed, epoch_parts(result)), *_why(result)]


def _speed(result: Result) -> Iterator[Finding]:
    batch, lr, model = result.spec["batch_sizes"][0], result.spec["lrs"][0], formatting.model_name(result.spec["model"])
    single = result.find("epoch_time", devices=1, batch_size=batch, lr=lr, way=None)
    if single is None:
        return
    most = formatting.largest(result.select("epoch_time", batch_size=batch, lr=lr, way=None), "devices")[0]
    if most is single:
        rate = f"{(result.spec['train_images'] or TRAIN_IMAGES) / single.median:.4g} images/s"
        text = f"One device trains {model} at {rate}: {formatting.time(single)} per epoch."
        yield Finding(text, Topic.ONE_DEVICE, rate)
        return
    gain, count = formatting.speedup(most, single), most.case["devices"]
    text = (
        f"nn.DataParallel trains {model} {formatting.factor(gain)} as fast on {count} devices as on one, at batch"
        f" {batch}."
    )
    yield Finding(text, Topic.DATA_PARALLEL, f"{gain.value:.2f}x on {count} devices")


def _accuracy(result: Result) -> Iterator[Finding]:
    """The corners of the grid on one device: what the textbook's pair changes apart from the devices."""
    batches, lrs = result.spec["batch_sizes"], result.spec["lrs"]
    small = result.find("accuracy", devices=1, batch_size=batches[0], lr=lrs[0], start=None)
    large = result.find("accuracy", devices=1, batch_size=batches[-1], lr=lrs[-1], start=None)
    if not (small and large) or small is large:
        return
    before, after = learning.final(small), learning.final(large)
    error = learning.error_of(before, after, result.spec["test_images"] or learning.TEST_IMAGES)
    text = (
        f"On one device alone, batch {batches[-1]} with lr {lrs[-1]:g} instead of batch {batches[0]} with lr {lrs[0]:g}"
        f" moves the test accuracy from {before:.3f} to {after:.3f} (give or take {error:.3f}) after"
        f" {len(small.samples[0])} epochs"
    )
    clear = abs(after - before) > error
    text += ": the devices do not cause that part of the textbook's difference." if clear else ": no clear difference."
    yield Finding(text, Topic.ACCURACY_BY_BATCH)


def _growing(result: Result) -> Iterator[Finding]:
    """Weak scaling as the textbook does it, on the most devices."""
    match growing_with_devices(result):
        case [(one, before), *_, (most, after)]:
            count = most.case["devices"]
            text = (
                f"On {count} devices with {count} times the batch and learning rate an epoch is trained"
                f" {formatting.factor(formatting.speedup(most, one))} as fast as on one, and the accuracy ends at"
                f" {learning.final(after):.3f} instead of {learning.final(before):.3f}."
            )
            yield Finding(text, Topic.GROWING_BATCH)


def _as_printed(parts: EpochParts) -> Finding:
    """What loading adds to the textbook's epoch, which synchronises no batch."""
    printed, ours = map(formatting.time, (parts.printed, parts.resident))
    loads = parts.printed.over(parts.resident).verdict == "slower"
    share = f"{formatting.share(parts.loading)} of it is what loading adds"
    text = (
        f"Loaded as the textbook prints it, an epoch on {counted(parts.devices, 'device')} takes {printed} instead of"
        f" {ours}{f': {share}.' if loads else '. What loading adds cannot be told.'}"
    )
    return Finding(text, Topic.AS_PRINTED)


def _why(result: Result) -> Iterator[Finding]:
    """Which of the changes from the textbook's first run to its second explains that it is less accurate."""
    steps = {step.cause: step for step in causes(result)}
    if Cause.ALL not in steps:
        return
    whole = steps[Cause.ALL]
    changes = {
        Cause.LAZY_LAYERS: "lazy layers initialised, too",
        Cause.SECOND_RUN: "the first run's net again",
        Cause.BATCH_AND_RATE: f"batch {whole.after.case['batch_size']} with lr {whole.after.case['lr']:g}",
    }
    moved = "; ".join(f"{what}, {_moved(steps[cause])}" for cause, what in changes.items())
    drops = [what for cause, what in changes.items() if steps[cause].explains_a_drop]
    verdict = "There is no drop here to explain"
    if whole.explains_a_drop:
        verdict = f"The drop comes with: {', and '.join(drops)}" if drops else "The drop comes with none of them alone"
    elif whole.moved < 0:
        verdict = "The drop is within what chance, or a run between two of its epochs, may move it by"
    text = (
        f"After {len(whole.before.samples[0])} epochs on one device, the textbook's first run as printed, at batch"
        f" {whole.before.case['batch_size']} with lr {whole.before.case['lr']:g}, ends at"
        f" {learning.final(whole.before):.3f} and its second at {learning.final(whole.after):.3f}. One change at a"
        f" time, in runs of one seed: {moved}. {verdict}."
    )
    yield Finding(text, Topic.TEXTBOOK_RUNS)
    if blocks := steps.get(Cause.BLOCKS):
        text = f"Its own residual blocks instead of torchvision's move the accuracy by {_moved(blocks)}."
        yield Finding(text, Topic.TEXTBOOK_BLOCKS)


def _moved(step: Step) -> str:
    return f"{step.moved:+.3f} (give or take {step.error:.3f})"


def published(result: Result) -> Iterator[Ours]:
    """Of the textbook's network epochs, accuracies and rates, and two devices over one, each with its own batch."""
    if result.spec["model"] != "resnet18":
        return
    own = list(published_epochs(result))
    yield from own
    times = [each for each in own if each.metric == "sec_per_epoch"]
    one, two = (
        {tuple(each.includes): each for each in times if each.gpus == gpus and each.settings.items() >= at.items()}
        for gpus, at in enumerate(PAIR, 1)
    )
    for each in times:
        yield replace(each, metric="images_per_second", value=each.settings["train_images"] / each.value)
    for includes, each in two.items():
        if includes in one:
            yield replace(each, metric="speedup_2gpu", value=one[includes].value / each.value)


def nightly(result: Result) -> Iterator[Number]:
    """An epoch at the first batch and rate, on most devices."""
    case: Case = {"batch_size": result.spec["batch_sizes"][0], "lr": result.spec["lrs"][0], "way": None}
    for record in formatting.largest(result.select("epoch_time", **case), "devices"):
        model = formatting.model_name(record.text("workload"))
        yield Number(f"epoch of {model} on {record.case['devices']} devices", record)
