"""How fast can devices add up their gradients, and what does a good algorithm bring?

Bus bandwidth over the bytes each device holds, at the largest number of devices within a node and over nodes:
2 (n - 1)/n x bytes / time, which can be compared with the link's rate whatever n is. Small sizes cost latency. Bands
hold the middle half of the samples.
"""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

from scalecard.records.record import Record, Result
from scalecard.report import charts, limits, units, words
from scalecard.report.judgements import Judgement, rated
from scalecard.report.limits import Limit
from scalecard.report.sections import Finding, Number


def plot(results: Sequence[Result]) -> Figure:
    """Bus bandwidth over bytes, and time over bytes."""
    figure, (left, right) = plt.subplots(1, 2)
    data = words.frame(results, "time", "devices", "nodes", "algorithm", "bytes", textbook=None)
    if len(data):
        data = data.assign(where=words.where(data))
        data = data[data["devices"] == data.groupby(["platform", "where"])["devices"].transform("max")]
        data = data.assign(algorithm=data["algorithm"] + data["where"])
        bandwidth = data.assign(value=2 * (data["devices"] - 1) / data["devices"] * data["bytes"] / data["value"] / 1e9)
        charts.lines(bandwidth, x="bytes", hue="algorithm", axes=left)
        charts.lines(data, x="bytes", hue="algorithm", axes=right)
    left.set(
        xlabel="size on each device", ylabel="bus bandwidth (GB/s)", xscale="log", yscale="log", title="bus bandwidth"
    )
    right.set(xlabel="size on each device", ylabel="time (s)", xscale="log", yscale="log", title="time")
    for axes in (left, right):
        charts.byte_ticks(axes, results[0].spec["bytes"])
    sns.despine(figure)
    return figure


def findings(result: Result) -> list[Finding]:
    """The best bus bandwidth with its share of the link, ring against naive, and the latency."""
    everything = result.select("time", textbook=None)
    if not everything:
        return [Finding(text=f"Not measured: {words.reason(result, 'time')}.", headline="not measured", priority=90)]
    found = []
    for nodes in words.spans(everything):
        records = words.largest(result.select("time", textbook=None, nodes=nodes), "devices")
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
        value=f"{units.number(rate)} GB/s, {units.percent(rate / limit.rate)} of {limit.name}",
        expectation="above the wire is right if the switch itself adds (NVLink SHARP): fewer bytes travel than the"
        " bus bandwidth formula counts",
        verdict="above the wire",
    )


def _best(result: Result, records: list[Record], nodes: int | None) -> list[Finding]:
    best = max(records, key=limits.bus_bandwidth)
    limit, reached = limits.of_all_reduce(result, best), limits.bus_bandwidth(best)
    share = (
        f", {units.percent(reached / limit.rate)} of {limit.name} ({units.number(limit.rate)} GB/s)" if limit else ""
    )
    text = (
        f"The best all-reduce on {best.case['devices']} devices{words.over_nodes(nodes)} is {best.case['algorithm']}'s:"
        f" bus bandwidth {words.rate(best, reached * best.median)} GB/s at {units.count_bytes(best.case['bytes'])}"
        f"{share}."
    )
    return [Finding(text=text, headline=f"{units.number(reached)} GB/s bus bandwidth", priority=15 if nodes else 14)]


def _ring(records: list[Record]) -> list[Finding]:
    top = {r.case["algorithm"]: r for r in words.largest(records, "bytes")}
    if not {"ring", "naive"} <= set(top):
        return []
    size = units.count_bytes(top["ring"].case["bytes"])
    text = words.versus("From scratch, the ring", top["ring"].over(top["naive"]), "the naive all-reduce")
    bound = [f"the {name}" for name in ("ring", "naive") if top[name].launch_bound]
    doubt = f" But {' and '.join(bound)} waited for the thread that launches it: no verdict on the algorithms."
    return [Finding(text=f"{text}, at {size}.{doubt if bound else ''}", priority=40)]


def _latency(records: list[Record], nodes: int | None) -> list[Finding]:
    small = [r for r in records if r.case["algorithm"] == "torch.distributed"]
    if not small:
        return []
    least = min(small, key=lambda r: float(r.case["bytes"] or 0))
    text = f"torch.distributed ({least.case['backend']}){words.over_nodes(nodes)} needs {words.time(least)} even for"
    return [Finding(text=f"{text} {units.count_bytes(least.case['bytes'])}.", priority=38)]


def nightly(result: Result) -> Iterator[Number]:
    """The library's bus bandwidth at the largest size, on most devices, within a node and over nodes."""
    everything = result.select("time", algorithm="torch.distributed")
    for nodes in words.spans(everything):
        most = words.largest([r for r in everything if r.case.get("nodes") == nodes], "devices")
        for record in words.largest(most, "bytes"):
            size, count = units.count_bytes(record.case["bytes"]), record.case["devices"]
            label = f"all-reduce of {size} on {count} devices{words.over_nodes(nodes)}"
            amount = limits.bus_bandwidth(record) * record.median
            yield Number(label=label, record=record, amount=amount, unit="GB/s")
