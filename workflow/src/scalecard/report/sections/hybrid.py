"""What do data and model parallelism bring together?

Images per second over the devices used, two per rank, and this platform's ideal line. Bands are 95 % intervals. Also
timed is DistributedDataParallel around the module that lies on two devices. It takes at most one of `device_ids`:
several devices per process, as in old tutorials, are gone from PyTorch.
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from scalecard.analysis import formatting
from scalecard.analysis.platforms import platform_label
from scalecard.figures import charts, layout, points
from scalecard.records.record import Result
from scalecard.records.strategies import DDP, HYBRID, MODEL_PARALLEL
from scalecard.report.sections import Finding, Number, Topic, not_measured, on_most


def plot(results: Sequence[Result]) -> Figure:
    """Images per second by devices, beside the ideal; no panel if only one number of devices was measured."""
    shown = [point for result in results for point in _rates(result)]
    counts = charts.numbers(shown)
    if len(counts) < 2:
        return Figure()
    figure, (axes,) = layout.panels(1)
    charts.curves(shown, axes, unit="images/s", ticked=True, xlabel="devices", ylabel="images/s", title="scaling")
    here = [point for point in shown if point.platform == platform_label(results[0]) and point.x == counts[0]]
    if here:
        charts.ideal(axes, counts, [here[0].value * count / counts[0] for count in counts])
    axes.set_ylim(bottom=0)
    return figure


def _rates(result: Result) -> list[points.Point]:
    """One rank without averaging, then hybrid parallelism within a node and over nodes."""
    alone = result.select("step_time", strategy=MODEL_PARALLEL.name, ranks=1)
    records = [*alone, *result.select("step_time", strategy=HYBRID.name)]
    return [
        points.rated(result, r, r.integer("batch_size"), series=series, x=r.integer("devices"))
        for nodes in formatting.spans(records)
        if (series := formatting.over_nodes(nodes)[1:] or HYBRID.name)
        for r in records
        if r.case.get("nodes") == nodes
    ]


def findings(result: Result) -> list[Finding]:
    """Efficiency against one rank, what averaging costs, and DDP's way, within a node and over nodes."""
    single = result.find("step_time", strategy=MODEL_PARALLEL.name, ranks=1)
    found = list[Finding]()
    for nodes, (most, *_) in on_most(result.select("step_time", strategy=HYBRID.name), "ranks"):
        ranks, over = most.case["ranks"], formatting.over_nodes(nodes)
        if single:
            ratio = formatting.speedup(most, single)
            share = formatting.percent(ratio.value)
            bounds = f" ({ratio.interval.low:.2f} to {ratio.interval.high:.2f})" if ratio.interval else ""
            text = (
                f"Hybrid parallelism on {most.case['devices']} devices, {ranks} ranks{over}, is {share} efficient"
                f"{bounds}: each rank's batch takes {1 / ratio.value:.2f}x the time that it takes alone."
            )
            found.append(Finding(text, Topic.HYBRID, f"{share}, {ranks} ranks"))
        if without := result.find("step_time", strategy=MODEL_PARALLEL.name, ranks=ranks, nodes=nodes):
            text = formatting.versus(f"A step with averaging{over}", most.over(without), "one without")
            found.append(Finding(f"{text}.", Topic.HYBRID_AVERAGING))
        if wrapped := result.find("step_time", strategy=DDP.name, ranks=ranks, nodes=nodes):
            what = f"DistributedDataParallel around the model on two devices{over}"
            text = formatting.versus(what, wrapped.over(most), "averaging each stage after its backward")
            found.append(Finding(f"{text}.", Topic.WRAPPED_HYBRID))
    return found or [not_measured(result, "step_time", "Not compared", "one rank")]


def nightly(result: Result) -> Iterator[Number]:
    """A step on most ranks, within a node and over nodes."""
    for nodes, most in on_most(result.select("step_time", strategy=HYBRID.name), "ranks"):
        for record in most:
            yield Number(f"step on {record.case['ranks']} ranks of two devices{formatting.over_nodes(nodes)}", record)
