"""What does it cost to move data between host and devices, and what can hide it?

The map shows the rate of the largest copies from each device to each other one. Rates between host and device are over
the size of the copy: latency limits small ones, the link (dashed) large ones. Then the textbook's three steps, and the
same copies on a separate stream: "non-blocking" is the textbook's third, whose copies queue in the computing stream and
gain only from pinned memory; "overlapped" can take less than the sum of both. Bands and whiskers are 95 % intervals.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from matplotlib.figure import Figure

from scalecard.analysis import by_key, formatting, limits
from scalecard.analysis.limits import Judgement
from scalecard.analysis.published_figures import Ours
from scalecard.figures import charts, layout, points
from scalecard.records.axes import Scalar
from scalecard.records.record import Record, Result
from scalecard.report.sections import Finding, Number, Topic, known

Ends = tuple[Scalar, Scalar]  # source and target
TO_DEVICE: Ends = ("host", 0)
TO_HOST: Ends = (0, "host")
HOST_KINDS = [(ends, memory) for memory in ("pinned", "pageable") for ends in (TO_DEVICE, TO_HOST)]
CALLS = {"blocking": "blocking", "non_blocking": "non-blocking"}
MAP = 190.0  # points: the width of a map's cells in all


def plot(results: Sequence[Result]) -> Figure:
    """GB/s between devices, as a map; GB/s between host and device over bytes; time of the textbook's steps."""
    here = results[0]
    links, host = _links(here), _host_links(results)
    shown = [
        points.timed(result, record, series="", x=record.text("step"))
        for result in results
        for record in result.select("time", part="textbook")
    ]
    figure, panels = layout.panels(1 + bool(links) + bool(host))
    if links:
        charts.heat_map(links, panels[0], width=MAP, what="device", title="largest copy between devices (GB/s)")
    if host:
        charts.curves(host, panels[-2], unit="GB/s", x_unit="B", xlabel="size of the copy", ylabel="GB/s")
        best = [limits.of_copy(here, record) for record in _between(here, *TO_DEVICE)]
        if best and best[-1]:
            charts.limit(panels[-2], best[-1].rate, best[-1].name)
        panels[-2].set(title="between host and device", xscale="log", ylim=(0, None))
        charts.byte_ticks(panels[-2], here.spec["bytes"])
    charts.bars(shown, panels[-1], unit="s", xlabel="time", title="the textbook's steps")
    return figure


def _links(result: Result) -> dict[charts.Pair, float]:
    found = dict[charts.Pair, float]()
    for record in formatting.largest(result.select("time", part="matrix"), "bytes"):
        if limits.is_pair(record):
            pair = record.integer("source"), record.integer("target")
            found[pair] = max(limits.copy_rate(record), found.get(pair, 0.0))
    return found


def _host_links(results: Sequence[Result]) -> list[points.Point]:
    """By direction and kind of memory; of several platforms the fastest kind to the device alone."""
    return [
        points.rated(
            result,
            record,
            limits.copy_rate(record) * record.median,
            series=f"{formatting.direction(record)}, {memory}",
            x=record.integer("bytes"),
        )
        for result in results
        for ends, memory in (HOST_KINDS[:1] if len(results) > 1 else HOST_KINDS)
        for record in _between(result, *ends, memory=memory, call="blocking")
    ]


def _between(result: Result, source: Scalar, target: Scalar, **case: Scalar) -> list[Record]:
    return result.select("time", part="matrix", source=source, target=target, **case)


def _by_direction(result: Result) -> list[list[Record]]:
    """All copies with the same source and target, of every pair of these."""
    records = result.select("time", part="matrix")
    return [*by_key(((record.case["source"], record.case["target"]), record) for record in records).values()]


def findings(result: Result) -> list[Finding]:
    """The best rate in each direction with its share of the link, and what overlapping gains."""
    found = [*_rates(result)]
    serial = result.find("time", part="textbook", step="compute, then copy")
    overlapped = result.find("time", part="textbook", step="overlapped")
    if serial and overlapped:
        ratio = overlapped.over(serial)
        text = formatting.versus("Overlapping the copies with computing", ratio, "computing, then copying")
        found.append(Finding(f"{text}.", Topic.COPY_OVERLAP, f"{1 / ratio.value:.2f}x by overlap"))
    return found


def published(result: Result) -> Iterator[Ours]:
    """The textbook's three steps, the rate of the copies, and what the third gains over the first two."""
    size, products = result.spec["size"], result.spec["products"]
    compute, copy, both = (
        result.find("time", part="textbook", step=step) for step in ("compute", "copy", "non-blocking")
    )
    found = {
        "time_compute_only": compute.median if compute else None,
        "time_copy_after_compute": copy.median if copy else None,
        "time_compute_and_copy_nonblocking": both.median if both else None,
        "d2h_bandwidth_implied": 4 * size**2 * products / copy.median / 1e9 if copy else None,
    }
    if compute and copy and both:
        found["sequential_over_overlapped"] = (compute.median + copy.median) / both.median
    return known(found, settings={"matrix": [size, size], "matmuls_per_run": products})


def judge(result: Result) -> Iterator[Judgement]:
    """The best copy in each direction: over PCIe, over NVLink, or within a device's memory.

    Small copies say nothing of a rate, and a run that ended early may have no others.
    """
    for records in _by_direction(result):
        # Small copies within a device stay in its cache: only the largest size measures its memory.
        able = formatting.largest(records, "bytes")[:1] if limits.is_within(records[0]) else records
        best = max(able, key=limits.copy_rate)
        limit = limits.of_copy(result, best)
        if limit and (best.integer("bytes") >= limits.LEAST_COPY or limit.advice):
            size, memory = formatting.count_bytes(best.case["bytes"]), best.case["memory"]
            what = f"{formatting.direction(best).capitalize()}, {memory} memory, {size}, effective rate one way"
            yield limits.rated(what, limits.copy_rate(best), limit, "GB/s", *limits.kind_of_copy(result, best))


def _worth_showing(result: Result) -> Iterator[tuple[list[Record], str]]:
    """The copies to show, with a remark; of many GPU pairs, only the fastest and the slowest at the largest size."""
    every = _by_direction(result)
    pairs = [records for records in every if limits.is_pair(records[0])]
    pairs.sort(key=lambda records: max(map(limits.copy_rate, formatting.largest(records, "bytes"))))
    for records in every:
        if len(pairs) <= 2 or records not in pairs:
            yield records, ""
        elif records is pairs[-1]:
            yield records, f" It is the fastest of {len(pairs)} pairs."
        elif records is pairs[0]:
            yield records, f" It is the slowest of {len(pairs)}."


def _rates(result: Result) -> Iterator[Finding]:
    topic = Topic.COPY_RATE
    for records, remark in _worth_showing(result):
        if max(record.integer("bytes") for record in records) < max(result.spec["bytes"]):
            continue  # there was no time for those that tell of the link
        best = max(records, key=limits.copy_rate)
        limit, reached, direction = limits.of_copy(result, best), limits.copy_rate(best), formatting.direction(best)
        text = (
            f"{direction.capitalize()}, the best copy runs at {formatting.rate(best, reached * best.median)} GB/s"
            f"{limit.beside(reached, 'GB/s') if limit else ''}: {formatting.count_bytes(best.case['bytes'])},"
            f" {best.case['memory']} memory, {CALLS[best.text('call')]}.{remark}"
        )
        yield Finding(text, topic, f"{formatting.number(reached)} GB/s {direction}")
        topic = Topic.OTHER_COPIES


def nightly(result: Result) -> Iterator[Number]:
    """The rate of the largest copy between host and device, in each direction and kind of memory."""
    for ends, memory in product((TO_DEVICE, TO_HOST), ("pinned", "pageable")):
        for record in formatting.largest(_between(result, *ends, memory=memory, call="blocking"), "bytes"):
            label = f"{formatting.direction(record)}, {memory}, {formatting.count_bytes(record.case['bytes'])}"
            yield Number(label, record, limits.copy_rate(record) * record.median, "GB/s")
