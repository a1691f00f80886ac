"""The numbers of `health` to follow from night to night: of each part the slowest device, pair or node, alone.

The slowest one is the part that a training step waits for. Its label names no device, so that it stays one number.
"""

from collections.abc import Iterator, Sequence

from scalecard.analysis import formatting, limits, ratio_text
from scalecard.records.record import Record, Result
from scalecard.report.sections import Number


def nightly(result: Result) -> Iterator[Number]:
    """Products and memory of each device, links at their largest size, all-reduce on most devices, the storage."""
    yield from _products(result)
    copies = result.select("time", part="memory", access="copy", at_once=False)
    yield from _slowest(copies, "memory copy, slowest device", passes=2)
    for direction in ("to device", "to host"):
        own = result.select("time", part="host link", direction=direction, memory="pinned", at_once=False)
        yield from _slowest(own, f"host {'to slowest device' if direction == 'to device' else 'from slowest device'}")
    yield from _slowest(result.select("time", part="device link", at_once=False), "slowest pair of devices")
    yield from _all_reduce(result)
    yield from _slowest(result.select("time", part="node pair"), "all-reduce of the slowest pair of nodes", rate=False)
    yield from _slowest(result.select("time", part="storage"), "reading data_dir")


def _products(result: Result) -> Iterator[Number]:
    records = result.select("time", part="compute", at_once=False)
    for dtype in dict.fromkeys(r.text("dtype") for r in records):
        slowest = max((r for r in records if r.case["dtype"] == dtype), key=lambda r: r.median)
        label, amount = f"{dtype} products, slowest device", limits.product_rate(slowest) * slowest.median
        yield Number(label=label, record=slowest, amount=amount, unit="TFLOP/s")


def _slowest(records: Sequence[Record], label: str, *, passes: int = 1, rate: bool = True) -> Iterator[Number]:
    """The slowest of those at the largest size; `passes` is how often each byte crosses the interface."""
    largest = ratio_text.largest(records, "bytes")
    if largest:
        slowest = max(largest, key=lambda r: r.median)
        size = float(slowest.case["bytes"] or 0)
        named = f"{label}, {formatting.count_bytes(slowest.case['bytes'])}"
        amount, unit = (passes * size / 1e9, "GB/s") if rate else (0.0, "s")
        yield Number(label=named, record=slowest, amount=amount, unit=unit)


def _all_reduce(result: Result) -> Iterator[Number]:
    """Bus bandwidth at the largest size, on most devices, within a node and over nodes."""
    everything = result.select("time", part="collective", collective="all_reduce")
    for nodes in ratio_text.spans(everything):
        most = ratio_text.largest([r for r in everything if r.case.get("nodes") == nodes], "devices")
        for record in ratio_text.largest(most, "bytes"):
            where = f"{record.case['devices']} devices{ratio_text.over_nodes(nodes)}"
            label = f"all-reduce of {formatting.count_bytes(record.case['bytes'])} on {where}"
            amount = limits.bus_bandwidth(record) * record.median
            yield Number(label=label, record=record, amount=amount, unit="GB/s")
