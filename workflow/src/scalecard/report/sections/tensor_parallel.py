"""What does dividing each layer over devices bring, and what do its exchanges cost?

Time of a step by how layers are divided: by output channels (column), by input channels (row), or by both in turn
(pairs), which exchanges nothing between the two layers of a pair. The dotted line is one device at the same
batch. Whiskers are 95 % intervals.
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from scalecard.analysis import formatting
from scalecard.analysis.step_records import counted
from scalecard.figures import charts, layout, points
from scalecard.records.record import Record, Result
from scalecard.records.strategies import SINGLE
from scalecard.report.sections import Finding, Number, Topic, not_measured

HOW = {"column": "by columns", "row": "by rows", "pairs": "in pairs"}
ALL_REDUCE = 2  # times (n - 1) and the bytes that are added up are received by n devices together


def plot(results: Sequence[Result]) -> Figure:
    """One panel per model."""
    models = results[0].spec["models"]
    shown = [
        [
            points.timed(result, r, series="", x=f"{r.case['strategy']}, {r.case['devices']} devices")
            for result in results
            for r in result.select("step_time", workload=model)
            if r.case["strategy"] != SINGLE.name
        ]
        for model in models
    ]
    figure, panels = layout.panels(len(models))
    for model, own, axes in zip(models, shown, panels, strict=True):
        charts.bars(own, axes, unit="s", xlabel="time of a step", title=formatting.model_name(model))
        if len(results) == 1 and (single := results[0].find("step_time", workload=model, strategy=SINGLE.name)):
            charts.mark_at(axes, single.median, "one device")
    return figure


def findings(result: Result) -> list[Finding]:
    """Of every model on most devices: the fastest partition against one device and the others, and what they exchange.

    The last model leads.
    """
    found = list[Finding]()
    for model in reversed(result.spec["models"]):
        single, divided = result.find("step_time", workload=model, strategy=SINGLE.name), _divided(result, model)
        if single and divided:
            topic = Topic.OTHER_DIVIDED_LAYERS if found else Topic.DIVIDED_LAYERS
            found += _of_model(single, divided, topic)
    return found or [not_measured(result, "step_time", "Not compared", "one device")]


def _divided(result: Result, model: str) -> list[Record]:
    """On most devices, the fastest first."""
    steps = result.select("step_time", workload=model)
    divided = [step for step in steps if step.case.get("strategy") not in (None, SINGLE.name)]
    return sorted(formatting.largest(divided, "devices"), key=lambda record: record.median)


def _of_model(single: Record, divided: Sequence[Record], topic: Topic) -> Iterator[Finding]:
    best, *others = divided
    ratio, devices = best.over(single), best.integer("devices")
    text = formatting.versus(f"{_name(best)} over {devices} devices", ratio, "one device")
    yield Finding(f"{text}.", topic, f"{ratio.value:.2f}x one device's time")
    for second in others[:1]:
        text = formatting.versus(_name(best), best.over(second), f"the same divided {_how(second)}")
        yield Finding(f"The two fastest partitions: {text}.", Topic.PARTITIONS)

    moved, parameters = {_how(r): counted(r, "received bytes") for r in divided}, counted(single, "parameter bytes")
    if parameters is not None and None not in moved.values():
        parts = ", ".join(f"{formatting.count_bytes(value)} {how}" for how, value in sorted(moved.items()))
        instead = formatting.count_bytes(ALL_REDUCE * (devices - 1) * parameters)
        model = formatting.model_name(single.text("workload"))
        text = (
            f"A step of {model} at batch {single.case['batch_size']} on {devices} devices"
            f" exchanges {parts}; data parallelism would exchange {instead} of gradients, at any batch."
        )
        yield Finding(text, Topic.EXCHANGED_BYTES)


def _name(record: Record) -> str:
    return f"{formatting.model_name(record.text('workload'))} divided {_how(record)}"


def _how(record: Record) -> str:
    return HOW[record.text("strategy")]


def nightly(result: Result) -> Iterator[Number]:
    """A step by each partition of the last model, on most devices."""
    for record in _divided(result, result.spec["models"][-1]):
        yield Number(f"step of {_name(record)} over {record.case['devices']} devices", record)
