"""What do data and model parallelism bring together?

Left: images per second over the devices used, two per rank, and this platform's ideal line. Right: time of a step with
and without averaging the gradients over the ranks. Whiskers and bands hold the middle half of the samples.
"""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from scalecard.records.record import Record, Result
from scalecard.report import charts, style, units, words
from scalecard.report.sections import Finding, Number


def plot(results: Sequence[Result]) -> Figure:
    """Images per second by devices; time of a step by strategy and layout."""
    figure, (left, right) = plt.subplots(1, 2)
    data = _steps(results)
    best = data[(data["strategy"] == "hybrid") | (data["ranks"] == 1)]
    charts.lines(best.assign(value=best["batch_size"] / best["value"]), x="devices", hue="where", axes=left)
    counts = sorted(best["devices"].unique())
    single = best[(best["ranks"] == 1) & (best["platform"] == style.platform_label(results[0]))]
    if len(single):
        rate = (single["batch_size"] / single["value"]).median() / single["devices"].median()
        left.plot(counts, [rate * count for count in counts], ":", color=style.colour("ideal"), label="ideal")
    charts.legend(left)
    left.set(xlabel="devices", ylabel="images/s", title="scaling", ylim=(0, None))
    left.set_xticks(counts)
    charts.bars(data.assign(label=data["strategy"] + ", " + data["layout"]), y="label", axes=right)
    right.set(xlabel="time of a step (s)", ylabel="", title="with and without averaging")
    sns.despine(figure)
    return figure


def _steps(results: Sequence[Result]) -> pd.DataFrame:
    data = words.frame(results, "time", "strategy", "ranks", "devices", "nodes", "batch_size")
    where = words.where(data)
    ranks = data["ranks"].map(lambda count: "1 rank" if count == 1 else f"{count} ranks")
    return data.assign(where=where.str.strip().replace("", "within a node"), layout=ranks + where)


def findings(result: Result) -> list[Finding]:
    """Efficiency against one rank, and what averaging costs, within a node and over nodes."""
    single = result.find("time", strategy="model parallel", ranks=1)
    found = []
    for nodes in words.spans(result.select("time", strategy="hybrid")):
        (most, *_) = words.largest(result.select("time", strategy="hybrid", nodes=nodes), "ranks")
        found += [*_efficiency(most, single, nodes), *_averaging(result, most, nodes)]
    reason = words.reason(result, "time")
    return found or [Finding(text=f"Not compared: {reason}.", headline="one rank", priority=90)]


def _efficiency(most: Record, single: Record | None, nodes: int | None) -> list[Finding]:
    if single is None:
        return []
    ratio = words.inverse(most.over(single))
    share = units.percent(ratio.value)
    bounds = f" ({ratio.interval.low:.2f} to {ratio.interval.high:.2f})" if ratio.interval else ""
    text = (
        f"Hybrid parallelism on {most.case['devices']} devices, {most.case['ranks']} ranks{words.over_nodes(nodes)}, is"
        f" {share} efficient{bounds}: each rank's batch takes {1 / ratio.value:.2f}x the time that it takes alone."
    )
    return [Finding(text=text, headline=f"{share}, {most.case['ranks']} ranks", priority=12)]


def _averaging(result: Result, most: Record, nodes: int | None) -> list[Finding]:
    without = result.find("time", strategy="model parallel", ranks=most.case["ranks"], nodes=nodes)
    if without is None:
        return []
    text = words.versus(f"A step with averaging{words.over_nodes(nodes)}", most.over(without), "one without") + "."
    return [Finding(text=text, priority=34)]


def nightly(result: Result) -> Iterator[Number]:
    """A step on most ranks, within a node and over nodes."""
    for nodes in words.spans(result.select("time", strategy="hybrid")):
        for record in words.largest(result.select("time", strategy="hybrid", nodes=nodes), "ranks"):
            label = f"step on {record.case['ranks']} ranks of two devices{words.over_nodes(nodes)}"
            yield Number(label=label, record=record)
