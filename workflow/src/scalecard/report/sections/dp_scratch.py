"""Does data parallelism written by hand train faster on more devices, and as well?

Left: seconds of every epoch, one dot each, and their median, by number of devices, at the same batch (strong scaling).
Right: test accuracy after each epoch; the curves should coincide, because the devices only share the work.
"""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

from scalecard.records.record import Result
from scalecard.report import charts, words
from scalecard.report.sections import Finding, Number


def plot(results: Sequence[Result]) -> Figure:
    """Epoch times by devices; accuracy by epoch."""
    figure, (left, right) = plt.subplots(1, 2)
    charts.dots(words.frame(results, "epoch_time", "devices"), x="devices", axes=left)
    left.set(xlabel="devices", ylabel="time of an epoch (s)", title="every epoch")
    left.set_ylim(bottom=0)
    charts.accuracies(words.frame(results, "accuracy", "devices"), hue="devices", axes=right)
    sns.despine(figure)
    return figure


def findings(result: Result) -> list[Finding]:
    """The speed-up on N devices, and whether the accuracy is the same."""
    single = result.find("epoch_time", devices=1)
    most = words.largest(result.select("epoch_time"), "devices")
    if single is None or not most or most[0] is single:
        return [
            Finding(text=f"Not compared: {words.reason(result, 'epoch_time')}.", headline="one device", priority=90)
        ]
    count = most[0].case["devices"]
    gain = words.speedup(most[0], single)
    found = [
        Finding(
            text=f"Data parallelism from scratch trains LeNet {gain} as fast on {count} devices as on one:"
            f" {words.time(most[0])} per epoch instead of {words.time(single)}.",
            headline=f"{gain.split()[0]} on {count} devices",
            priority=10,
        )
    ]
    one, many = result.find("accuracy", devices=1), result.find("accuracy", devices=count)
    if one and many:
        text = (
            f"Test accuracy after {len(one.samples[0])} epochs is {words.final(one):.3f} on one device and"
            f" {words.final(many):.3f} on {count}, on {one.case['data']} images."
        )
        found.append(Finding(text=text, priority=45))
    return found


def published(result: Result) -> dict[str, float]:
    """Our values for the textbook's workload: all 60,000 images at batch 256."""
    if result.spec["train_images"] is not None or result.spec["batch_size"] != 256:
        return {}
    return {f"sec_per_epoch@{r.case['devices']}": r.median for r in result.select("epoch_time")}


def nightly(result: Result) -> Iterator[Number]:
    """An epoch on most devices."""
    for record in words.largest(result.select("epoch_time"), "devices"):
        yield Number(label=f"epoch of LeNet on {record.case['devices']} devices", record=record)
