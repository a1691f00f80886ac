"""What does cutting a model over two devices cost, and how long does each device idle?

Time of the same minibatches on one device and cut over two, and of each stage alone, which is how long its device is
busy. With one minibatch at a time, the other device waits. Whiskers hold the middle half of the samples.
"""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

from scalecard.records.record import Record, Result
from scalecard.report import charts, units, words
from scalecard.report.sections import Finding, Number


def plot(results: Sequence[Result]) -> Figure:
    """Time by strategy, ResNet-50 and the toy."""
    figure, (left, right) = plt.subplots(1, 2, width_ratios=[3, 2])
    for model, axes in (("resnet50", left), ("toy", right)):
        charts.bars(words.frame(results, "time", "strategy", model=model), y="strategy", axes=axes)
        axes.set(xlabel="time (s)", ylabel="", title={"resnet50": "ResNet-50", "toy": "toy"}[model])
    sns.despine(figure)
    return figure


def findings(result: Result) -> list[Finding]:
    """One device against two, and the idle share of each."""
    single, cut = _strategy(result, "single device"), _strategy(result, "model parallel")
    if not (single and cut):
        return [Finding(text=f"Not compared: {words.reason(result, 'time')}.", headline="one device", priority=90)]
    text = words.versus("Plain model parallelism on two devices", cut.over(single), "one device")
    idle = [1 - busy.median / cut.median for busy in _stages(result)]
    if idle:
        shares = " and ".join(units.percent(max(0.0, share)) for share in idle)
        text += f"; the devices idle {shares} of the time"
    ratio = cut.over(single)
    return [
        Finding(text=text + ".", headline=f"{ratio.value:.2f}x one device's time", priority=13),
        *_balance(result),
        *_memory(result),
    ]


def _strategy(result: Result, name: str) -> Record | None:
    return result.find("time", model="resnet50", strategy=name)


def _stages(result: Result) -> list[Record]:
    found = [_strategy(result, f"stage {index} alone") for index in (0, 1)]
    return [record for record in found if record]


def _balance(result: Result) -> list[Finding]:
    """The bound that the cut itself sets: no pipeline over it is faster than its slower stage."""
    times, single = [record.median for record in _stages(result)], _strategy(result, "single device")
    if len(times) < 2 or single is None:
        return []
    text = (
        f"The stages take {units.seconds(times[0])} and {units.seconds(times[1])}, one device {words.time(single)}: no"
        f" pipeline over this cut can be more than {single.median / max(times):.2f}x as fast as one device."
    )
    return [Finding(text=text, priority=28)]


def _memory(result: Result) -> list[Finding]:
    single = result.find("peak_memory", strategy="single device")
    cut = result.select("peak_memory", strategy="model parallel")
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
