"""What does cutting a model over several devices cost, and how long does each device idle?

Time of the same minibatches on one device and cut over several, and of each stage alone, which is how long its device
is busy. With one minibatch at a time, the other devices wait. "balanced" cuts where the slowest stage is fastest, by
the blocks' own times. Whiskers hold the middle half of the samples.
"""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from scalecard.records.record import Record, Result
from scalecard.report import charts, stages, units, words
from scalecard.report.sections import Finding, Number


def plot(results: Sequence[Result]) -> Figure:
    """Time by strategy and cut, ResNet-50 and the toy."""
    figure, (left, right) = plt.subplots(1, 2, width_ratios=[3, 2])
    for model, axes in (("resnet50", left), ("toy", right)):
        data = words.frame(results, "time", "strategy", "cut", "devices", model=model)
        charts.bars(data.assign(label=_labels(data)), y="label", axes=axes)
        axes.set(xlabel="time (s)", ylabel="", title={"resnet50": "ResNet-50", "toy": "toy"}[model])
    figure.set_figheight(max(figure.get_figheight(), 0.3 * len(left.get_yticks())))
    sns.despine(figure)
    return figure


def _labels(data: pd.DataFrame) -> list[str]:
    """The strategy and, of a cut model, on how many devices and where it is cut."""
    rows = zip(data["strategy"], data["cut"], data["devices"], strict=True)
    return [f"{strategy}, {cut} {devices:g}" if isinstance(cut, str) else strategy for strategy, cut, devices in rows]


def findings(result: Result) -> list[Finding]:
    """One device against several, and the idle share of each."""
    single = _strategy(result, "single device")
    cuts = result.select("time", model="resnet50", strategy="model parallel")
    if not (single and cuts):
        return [Finding(text=f"Not compared: {words.reason(result, 'time')}.", headline="one device", priority=90)]
    found = []
    for number, cut in enumerate(cuts):
        text = words.versus(f"Plain model parallelism, cut {stages.cut_name(cut)},", cut.over(single), "one device")
        alone = _stages(result, cut)
        if alone:
            shares = " and ".join(units.percent(max(0.0, 1 - busy.median / cut.median)) for busy in alone)
            text += f"; the devices idle {shares} of the time"
        headline = f"{cut.over(single).value:.2f}x one device's time"
        found.append(Finding(text=f"{text}.", headline=headline, priority=13 + 10 * bool(number)))
        if alone:
            found.append(Finding(text=stages.balance(cut, alone, single), priority=28 + bool(number)))
    return [*found, *_memory(result)]


def _strategy(result: Result, name: str) -> Record | None:
    return result.find("time", model="resnet50", strategy=name)


def _stages(result: Result, cut: Record) -> list[Record]:
    """Each stage alone; none if one of them is missing."""
    where = {axis: cut.case.get(axis) for axis in ("devices", "cut")}
    count = int(str(cut.case.get("devices", 2)))
    found = [result.find("time", model="resnet50", strategy=f"stage {index} alone", **where) for index in range(count)]
    return [record for record in found if record] if all(found) else []


def _memory(result: Result) -> list[Finding]:
    single = result.find("peak_memory", strategy="single device")
    cut = result.select("peak_memory", strategy="model parallel", cut="after layer2")
    if not (single and cut):
        return []
    peaks = " and ".join(units.count_bytes(record.median) for record in cut)
    whole = units.count_bytes(single.median)
    text = f"On top of parameters and inputs a step needs at most {peaks} on the two devices, against {whole} on one."
    return [Finding(text=text, priority=36)]


def published(result: Result) -> dict[str, float]:
    """Our values for the tutorial's workload: 3 batches of 120 images of 128 x 128."""
    if [result.spec[key] for key in ("batch_size", "image_size", "batches")] != [120, 128, 3]:
        return {}
    ours = {"time_single_gpu": "single device", "time_model_parallel": "model parallel"}
    found = {metric: _strategy(result, name) for metric, name in ours.items()}
    return {metric: record.median for metric, record in found.items() if record}


def nightly(result: Result) -> Iterator[Number]:
    """ResNet-50 on one device, and cut over two."""
    for name in ("single device", "model parallel"):
        record = _strategy(result, name)
        if record:
            yield Number(label=f"ResNet-50, {name}", record=record)
    for record in result.select("time", model="resnet50", strategy="model parallel", cut="balanced", devices=2):
        yield Number(label="ResNet-50, model parallel, balanced", record=record)
