"""How fast can devices add up their gradients, and what does a good algorithm bring?

Bus bandwidth over the bytes each device holds, at the largest number of devices within a node and over nodes:
2 (n - 1)/n x bytes / time, which can be compared with the link's rate (dashed) whatever n is. Right: the time of small
sizes, which is latency. Over nodes, and beside other platforms, only the library's is drawn. Bands are 95 % intervals.
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from scalecard.analysis import by_key, formatting, limits, platforms
from scalecard.analysis.limits import Judgement
from scalecard.analysis.published_figures import Ours
from scalecard.figures import charts, layout, points
from scalecard.records.record import Record, Result
from scalecard.report.sections import Finding, Number, Topic, bus_bandwidths, not_measured, on_most

LIBRARY = "torch.distributed"
SMALL = 2**20  # bytes up to which latency is drawn
LARGE = 2**26  # bytes from which a rate tells of the link


def plot(results: Sequence[Result]) -> Figure:
    """Bus bandwidth over bytes, and time of the small sizes."""
    figure, (left, right) = layout.panels(2)
    everything = [pair for result in results for pair in _drawn(result, alone=len(results) == 1)]
    bandwidth = [
        points.rated(result, r, limits.bus_bandwidth(r) * r.median, series=_label(r), x=_size(r))
        for result, r in everything
    ]
    charts.curves(bandwidth, left, unit="GB/s", x_unit="B", ylabel="bus bandwidth (GB/s)", title="bandwidth")
    bounds = [limits.of_all_reduce(result, record) for result, record in everything if result is results[0]]
    if bounds and bounds[-1]:
        charts.limit(left, bounds[-1].rate, bounds[-1].name)
    small = [(result, record) for result, record in everything if _size(record) <= SMALL]
    latency = [points.timed(result, record, series=_label(record), x=_size(record)) for result, record in small]
    title = f"latency: up to {formatting.count_bytes(SMALL)}"
    charts.curves(latency, right, unit="s", x_unit="B", ylabel="time", title=title)
    sizes = results[0].spec["bytes"]
    for axes, own in ((left, sizes), (right, [size for size in sizes if size <= SMALL])):
        axes.set(xlabel="size on each device", xscale="log", ylim=(0, None))
        charts.byte_ticks(axes, own)
    return figure


def _drawn(result: Result, *, alone: bool) -> list[tuple[Result, Record]]:
    """On the most devices within a node, every algorithm; over nodes and beside other platforms the library's only."""
    known = result.select("time", textbook=None, **({} if alone else {"algorithm": LIBRARY}))
    most = [own for _, own in on_most(known)][: None if alone else 1]
    return [(result, r) for records in most for r in records if not r.case.get("nodes") or r.matches(algorithm=LIBRARY)]


def _label(record: Record) -> str:
    return record.text("algorithm") + formatting.over_nodes(record.integer("nodes", 0))


def _size(record: Record) -> int:
    return record.integer("bytes")


def findings(result: Result) -> list[Finding]:
    """The best bus bandwidth with its share of the link, ring against naive, and the latency."""
    everything = result.select("time", textbook=None)
    if not everything:
        return [not_measured(result, "time", "Not measured", "not measured")]
    return [
        finding for nodes, own in on_most(everything) for finding in _of_span(result, own, formatting.over_nodes(nodes))
    ]


def judge(result: Result) -> Iterator[Judgement]:
    """The library's best all-reduce on each number of devices, compared with the link."""
    records = result.select("time", algorithm=LIBRARY, nodes=None)
    for count, own in by_key((record.case["devices"], record) for record in records).items():
        best = max(own, key=limits.bus_bandwidth)
        limit, rate = limits.of_all_reduce(result, best), limits.bus_bandwidth(best)
        what = f"All-reduce on {count} devices, bus bandwidth"
        if limit and limit.is_nvlink and rate > limit.rate:
            value = f"{formatting.number(rate)} GB/s, {limit.share(rate)}"
            yield Judgement(what=what, value=value, expectation=limits.IN_THE_SWITCH, verdict="above the wire")
        elif limit:
            devices = best.integer("devices")
            kind = limits.kind_of_all_reduce(result, devices)
            yield limits.rated(what, rate, limit, "GB/s", kind, range(devices))


def published(result: Result) -> Iterator[Ours]:
    """The library's bus bandwidth of large sizes within a node, beside the same card's."""
    card = platforms.device_name(result)
    records = result.select("time", algorithm=LIBRARY, nodes=None)
    for record in sorted(records, key=_size, reverse=True):  # what states no size is of the largest
        if (size := _size(record)) >= LARGE:
            rate, count = limits.bus_bandwidth(record), record.integer("devices")
            yield Ours(metric=limits.BUS_BANDWIDTH, value=rate, gpus=count, settings={"bytes": size}, gpu=card)


def _of_span(result: Result, records: list[Record], over_nodes: str) -> Iterator[Finding]:
    best = max(records, key=limits.bus_bandwidth)
    limit, reached = limits.of_all_reduce(result, best), limits.bus_bandwidth(best)
    text = (
        f"The best all-reduce on {best.case['devices']} devices{over_nodes} is {best.case['algorithm']}'s: bus"
        f" bandwidth {formatting.rate(best, reached * best.median)} GB/s at {formatting.count_bytes(_size(best))}"
        f"{limit.beside(reached, 'GB/s') if limit else ''}."
    )
    topic = Topic.ALL_REDUCE_OVER_NODES if over_nodes else Topic.ALL_REDUCE
    yield Finding(text, topic, f"{formatting.number(reached)} GB/s bus bandwidth")

    top = {r.case["algorithm"]: r for r in formatting.largest(records, "bytes")}
    if {"ring", "naive"} <= set(top):
        text = formatting.versus("From scratch, the ring", top["ring"].over(top["naive"]), "the naive all-reduce")
        text += f", at {formatting.count_bytes(_size(top['ring']))}."
        if bound := " and ".join(f"the {name}" for name in ("ring", "naive") if top[name].launch_bound):
            text += f" But {bound} waited for the thread that launches it: no verdict on the algorithms."
        yield Finding(text, Topic.RING)

    if least := min((r for r in records if r.matches(algorithm=LIBRARY)), key=_size, default=None):
        text = (
            f"torch.distributed ({least.case['backend']}){over_nodes} needs {formatting.time(least)} even for"
            f" {formatting.count_bytes(_size(least))}."
        )
        yield Finding(text, Topic.ALL_REDUCE_LATENCY)


def nightly(result: Result) -> Iterator[Number]:
    """The library's bus bandwidth at the largest size."""
    return bus_bandwidths(result.select("time", algorithm=LIBRARY))
