"""What does it cost to move data between host and devices, and what can hide it?

Left: the textbook's three steps, and the same copies on a separate stream. "Non-blocking" is the textbook's third: its
copies queue in the computing stream and gain only from pinned memory; "overlapped" can take less than the sum of both.
Right: rate of one copy over its size, for every direction, kind of memory and call; latency limits small copies, the
link large ones. Of many GPU pairs, only the fastest and the slowest are drawn. Whiskers and bands hold the middle half
of the samples.
"""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

from scalecard.records.record import Record, Result
from scalecard.report import charts, limits, units, words
from scalecard.report.judgements import Judgement, rated
from scalecard.report.sections import Finding, Number


def plot(results: Sequence[Result]) -> Figure:
    """Time of the textbook's steps; GB/s over bytes."""
    figure, (left, right) = plt.subplots(1, 2)
    steps = words.frame(results, "time", "step", part="textbook")
    charts.bars(steps, y="step", axes=left)
    left.set(xlabel="time (s)", ylabel="", title="compute, copy, both")
    matrix = words.frame(results, "time", "direction", "memory", "call", "bytes", part="matrix")
    shown = {d for result in results for d in _worth_showing(result.select("time", part="matrix"))}
    matrix = matrix[matrix["direction"].isin(shown)]
    passes = 1 + matrix["direction"].str.startswith("within")  # within a device every byte is read and written
    matrix["value"] = passes * matrix["bytes"] / matrix["value"] / 1e9
    matrix["copy"] = matrix["direction"] + ", " + matrix["memory"] + ", " + matrix["call"].str.replace("_", "-")
    charts.lines(matrix, x="bytes", hue="copy", axes=right)
    right.set(xlabel="size", ylabel="rate (GB/s)", title="one copy", xscale="log", yscale="log")
    charts.byte_ticks(right, results[0].spec["bytes"])
    sns.despine(figure)
    return figure


def findings(result: Result) -> list[Finding]:
    """The best rate in each direction with its share of the link, and what overlapping gains."""
    return [*_rates(result), *_overlap(result)]


def published(result: Result) -> dict[str, float]:
    """Our values of the published metrics, if the workload is the same: 50 results of 4000 x 4000."""
    if (result.spec["size"], result.spec["products"]) != (4000, 50):
        return {}
    steps = {
        "time_compute_only": "compute",
        "time_copy_after_compute": "copy",
        "time_compute_and_copy_nonblocking": "non-blocking",
    }
    ours = {metric: result.find("time", part="textbook", step=step) for metric, step in steps.items()}
    return {metric: record.median for metric, record in ours.items() if record}


def judge(result: Result) -> Iterator[Judgement]:
    """The best copy in each direction: over PCIe, over NVLink, or within a device's memory."""
    records = result.select("time", part="matrix")
    for direction in dict.fromkeys(str(r.case["direction"]) for r in records):
        mine = [r for r in records if r.case["direction"] == direction]
        # Small copies within a device stay in its cache: only the largest size measures its memory.
        best = max(mine, key=_bytes if direction.startswith("within") else limits.copy_rate)
        limit = limits.of_copy(result, best)
        if limit:
            size, memory = units.count_bytes(best.case["bytes"]), best.case["memory"]
            what = f"{direction.capitalize()}, {memory} memory, {size}, effective rate one way"
            yield rated(what, limits.copy_rate(best), limit, "GB/s")


def _bytes(record: Record) -> float:
    return float(record.case["bytes"] or 0)


def _worth_showing(records: Sequence[Record]) -> dict[str, str]:
    """The directions to show, with remarks; of many GPU pairs, only the fastest and the slowest at the largest size."""
    rates = {}
    for direction in dict.fromkeys(str(r.case["direction"]) for r in records):
        mine = [r for r in records if r.case["direction"] == direction]
        rates[direction] = max(limits.copy_rate(r) for r in words.largest(mine, "bytes"))
    pairs = sorted((d for d in rates if limits.is_pair(d)), key=lambda d: rates[d])
    if len(pairs) <= 2:
        return dict.fromkeys(rates, "")
    remarks = {
        pairs[-1]: f" It is the fastest of {len(pairs)} pairs.",
        pairs[0]: f" It is the slowest of {len(pairs)}.",
    }
    return {d: remarks.get(d, "") for d in rates if d in remarks or d not in pairs}


def _rates(result: Result) -> list[Finding]:
    found: list[Finding] = []
    records = result.select("time", part="matrix")
    for direction, remark in _worth_showing(records).items():
        best = max((r for r in records if r.case["direction"] == direction), key=limits.copy_rate)
        limit, reached = limits.of_copy(result, best), limits.copy_rate(best)
        share = (
            f", {units.percent(reached / limit.rate)} of {limit.name} ({units.number(limit.rate)} GB/s)"
            if limit
            else ""
        )
        rate = words.rate(best, reached * best.median)
        call = str(best.case["call"]).replace("_", "-")
        text = (
            f"{direction.capitalize()}, the best copy runs at {rate} GB/s{share}:"
            f" {units.count_bytes(best.case['bytes'])}, {best.case['memory']} memory, {call}.{remark}"
        )
        found.append(
            Finding(text=text, headline=f"{units.number(reached)} GB/s {direction}", priority=18 if not found else 35)
        )
    return found


def _overlap(result: Result) -> list[Finding]:
    serial = result.find("time", part="textbook", step="compute, then copy")
    overlapped = result.find("time", part="textbook", step="overlapped")
    if not (serial and overlapped):
        return []
    text = (
        words.versus("Overlapping the copies with computing", overlapped.over(serial), "computing, then copying") + "."
    )
    return [Finding(text=text, headline=f"{words.speedup(overlapped, serial).split()[0]} by overlap", priority=25)]


def nightly(result: Result) -> Iterator[Number]:
    """The rate of the largest copy between host and device, in each direction and kind of memory."""
    for direction in ("host to device", "device to host"):
        for memory in ("pinned", "pageable"):
            records = result.select("time", part="matrix", direction=direction, memory=memory, call="blocking")
            for record in words.largest(records, "bytes"):
                label = f"{direction}, {memory}, {units.count_bytes(record.case['bytes'])}"
                amount = limits.copy_rate(record) * record.median
                yield Number(label=label, record=record, amount=amount, unit="GB/s")
