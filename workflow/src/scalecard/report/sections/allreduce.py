"""How fast can devices add up their gradients, and what does a good algorithm bring?

Bus bandwidth over the bytes each device holds, at the largest number of devices within a node and over nodes:
2 (n - 1)/n x bytes / time, which can be compared with the link's rate (dashed) whatever n is. Right: the time of small
sizes, which is latency. Over nodes, and beside other platforms, only the library's is drawn. Bands are 95 % intervals.
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from scalecard.analysis import formatting, limits, ratio_text
from scalecard.analysis.expectations import Judgement, rated
from scalecard.analysis.limits import Limit
from scalecard.figures import charts, points
from scalecard.records.record import Record, Result
from scalecard.report.sections import Finding, Number, Topic, not_measured

SMALL = 2**20  # bytes up to which latency is drawn


def plot(results: Sequence[Result]) -> Figure:
    """Bus bandwidth over bytes, and time of the small sizes."""
    figure, (left, right) = charts.panels(2)
    everything = [pair for result in results for pair in _drawn(result, alone=len(results) == 1)]
    bandwidth = [
        points.rated(
            result, record, limits.bus_bandwidth(record) * record.median, series=_label(record), x=_size(record)
        )
        for result, record in everything
    ]
    charts.curves(bandwidth, left, unit="GB/s", x_unit="B")
    bounds = [limits.of_all_reduce(result, record) for result, record in everything if result is results[0]]
    if bounds and bounds[-1]:
        charts.limit(left, bounds[-1].rate, bounds[-1].name)
    left.set(
        xlabel="size on each device", ylabel="bus bandwidth (GB/s)", xscale="log", title="bandwidth", ylim=(0, None)
    )
    small = [(result, record) for result, record in everything if _size(record) <= SMALL]
    latency = [points.timed(result, record, series=_label(record), x=_size(record)) for result, record in small]
    charts.curves(latency, right, unit="s", x_unit="B")
    right.set(
        xlabel="size on each device",
        ylabel="time",
        xscale="log",
        title=f"latency: up to {formatting.count_bytes(SMALL)}",
    )
    right.set_ylim(bottom=0)
    charts.byte_ticks(left, results[0].spec["bytes"])
    charts.byte_ticks(right, [size for size in results[0].spec["bytes"] if size <= SMALL])
    return figure


def _drawn(result: Result, *, alone: bool) -> list[tuple[Result, Record]]:
    """On the most devices within a node and over nodes, every algorithm; beside other platforms only the library's."""
    everything = [
        r for r in result.select("time", textbook=None) if alone or r.case["algorithm"] == "torch.distributed"
    ]
    spans = ratio_text.spans(everything)[: None if alone else 1]
    most = [ratio_text.largest([r for r in everything if r.case.get("nodes") == nodes], "devices") for nodes in spans]
    return [
        (result, record) for records in most for record in records if not record.case.get("nodes") or _named(record)
    ]


def _named(record: Record) -> bool:
    return record.case["algorithm"] == "torch.distributed"


def _label(record: Record) -> str:
    return str(record.case["algorithm"]) + ratio_text.over_nodes(record.integer("nodes", 0))


def _size(record: Record) -> float:
    return float(record.case["bytes"] or 0)


def findings(result: Result) -> list[Finding]:
    """The best bus bandwidth with its share of the link, ring against naive, and the latency."""
    everything = result.select("time", textbook=None)
    if not everything:
        return [not_measured(result, "time", "Not measured", "not measured")]
    found = []
    for nodes in ratio_text.spans(everything):
        records = ratio_text.largest(result.select("time", textbook=None, nodes=nodes), "devices")
        found += [*_best(result, records, nodes), *_ring(records), *_latency(records, nodes)]
    return found


def judge(result: Result) -> Iterator[Judgement]:
    """The library's best all-reduce on each number of devices, compared with the link."""
    records = result.select("time", algorithm="torch.distributed", nodes=None)
    for count in dict.fromkeys(r.case["devices"] for r in records):
        best = max((r for r in records if r.case["devices"] == count), key=limits.bus_bandwidth)
        limit, rate = limits.of_all_reduce(result, best), limits.bus_bandwidth(best)
        what = f"All-reduce on {count} devices, bus bandwidth"
        if limit and limit.is_nvlink and rate > limit.rate:
            yield _above(what, rate, limit)
        elif limit:
            yield rated(what, rate, limit, "GB/s")


def _above(what: str, rate: float, limit: Limit) -> Judgement:
    return Judgement(
        what=what,
        value=f"{formatting.number(rate)} GB/s, {formatting.percent(rate / limit.rate)} of {limit.name}",
        expectation="above the wire is right if the switch itself adds (NVLink SHARP): fewer bytes travel than the"
        " bus bandwidth formula counts",
        verdict="above the wire",
    )


def _best(result: Result, records: list[Record], nodes: int | None) -> list[Finding]:
    best = max(records, key=limits.bus_bandwidth)
    limit, reached = limits.of_all_reduce(result, best), limits.bus_bandwidth(best)
    share = (
        f", {formatting.percent(reached / limit.rate)} of {limit.name} ({formatting.number(limit.rate)} GB/s)"
        if limit
        else ""
    )
    text = (
        f"The best all-reduce on {best.case['devices']} devices{ratio_text.over_nodes(nodes)} is"
        f" {best.case['algorithm']}'s:"
        f" bus bandwidth {ratio_text.rate(best, reached * best.median)} GB/s at"
        f" {formatting.count_bytes(best.case['bytes'])}"
        f"{share}."
    )
    topic = Topic.ALL_REDUCE_OVER_NODES if nodes else Topic.ALL_REDUCE
    return [Finding(text=text, headline=f"{formatting.number(reached)} GB/s bus bandwidth", topic=topic)]


def _ring(records: list[Record]) -> list[Finding]:
    top = {r.case["algorithm"]: r for r in ratio_text.largest(records, "bytes")}
    if not {"ring", "naive"} <= set(top):
        return []
    size = formatting.count_bytes(top["ring"].case["bytes"])
    text = ratio_text.versus("From scratch, the ring", top["ring"].over(top["naive"]), "the naive all-reduce")
    bound = [f"the {name}" for name in ("ring", "naive") if top[name].launch_bound]
    doubt = f" But {' and '.join(bound)} waited for the thread that launches it: no verdict on the algorithms."
    return [Finding(text=f"{text}, at {size}.{doubt if bound else ''}", topic=Topic.RING)]


def _latency(records: list[Record], nodes: int | None) -> list[Finding]:
    small = [r for r in records if r.case["algorithm"] == "torch.distributed"]
    if not small:
        return []
    least = min(small, key=lambda r: float(r.case["bytes"] or 0))
    text = (
        f"torch.distributed ({least.case['backend']}){ratio_text.over_nodes(nodes)} needs {ratio_text.time(least)}"
        " even for"
    )
    return [Finding(text=f"{text} {formatting.count_bytes(least.case['bytes'])}.", topic=Topic.ALL_REDUCE_LATENCY)]


def nightly(result: Result) -> Iterator[Number]:
    """The library's bus bandwidth at the largest size, on most devices, within a node and over nodes."""
    everything = result.select("time", algorithm="torch.distributed")
    for nodes in ratio_text.spans(everything):
        most = ratio_text.largest([r for r in everything if r.case.get("nodes") == nodes], "devices")
        for record in ratio_text.largest(most, "bytes"):
            size, count = formatting.count_bytes(record.case["bytes"]), record.case["devices"]
            label = f"all-reduce of {size} on {count} devices{ratio_text.over_nodes(nodes)}"
            amount = limits.bus_bandwidth(record) * record.median
            yield Number(label=label, record=record, amount=amount, unit="GB/s")
