"""Is every part of this machine as it should be?

The map shows what each device copies to each other one (one pair at a time, GB/s); a frame marks an odd one out. In the
strips every device is a point, beside the median of its peers: what is alone at the left, with its number, is slower
than the others. Over several nodes the map is that of the node with the most odd ones, and 3:2 is device 2 of node 3. A
single device is shown beside the hardware's limit. Collectives: bus bandwidth over the devices that
take part, as nccl-tests defines it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import by_key, formatting, limits, platforms
from scalecard.analysis.health.alerts import alerts, verdicts
from scalecard.analysis.health.judge_state import course
from scalecard.analysis.health.rates import MODES, NOTABLE, OF_DEVICES, Rate, is_small, rates
from scalecard.analysis.health.verdict import FINE, SYMBOLS, WORDS, Kind, Part, Verdict, views
from scalecard.analysis.limits import Judgement
from scalecard.analysis.published_figures import Ours
from scalecard.figures import charts, layout, points, style
from scalecard.figures.charts import Pair
from scalecard.progress import counted
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.report.sections import Finding, Number, Topic, bus_bandwidths

ROW = 0.3  # inches for each strip
MAP = 230.0  # points: what is left of half the figure for a map's cells
OFFSET = 0.2  # between what was measured alone and all at once, in rows
DRAWN = ("all_reduce", "all_gather", "all_to_all")  # collectives
Strips = dict[str, list[tuple[Rate, float]]]  # each rate and its share in %, by label
TO_DEVICE: Case = {"part": "host link", "direction": "to device", "at_once": False}
ALL_REDUCE: Case = {"part": "collective", "collective": "all_reduce"}
# What stands for a part: of these cases the first that was measured.
STANDS_FOR: dict[Part, tuple[Case, ...]] = {
    Part.COMPUTE: tuple({"part": "compute", "dtype": dtype, "at_once": False} for dtype in ("bfloat16", "float32")),
    Part.MEMORY: tuple({"part": "memory", "access": access, "at_once": False} for access in ("copy", "read")),
    Part.HOST_LINKS: ({**TO_DEVICE, "memory": "pinned"}, {**TO_DEVICE, "memory": "pageable"}),
    Part.GPU_LINKS: ({"part": "device link", "at_once": False},),
    Part.COLLECTIVES: (ALL_REDUCE,),
    Part.NETWORK: (ALL_REDUCE, {"part": "node pair"}),
    Part.HOST: ({"part": "storage"},),
}


def plot(results: Sequence[Result]) -> Figure:
    """The current platform's links and devices; the collectives of all platforms."""
    here = results[0]
    # Of several nodes, the one with the most odd pairs; between nodes it is the same in both directions.
    by_node = _links(here, "device link", ("source", "target"))
    node, pairs = max(by_node.items(), key=lambda one: len(_odd(one[1])), default=(0, {}))
    nodes = _links(here, "node pair", ("node", "other")).get(0, {})
    nodes |= {(b, a): rate for (a, b), rate in nodes.items()}
    strips, on = _strips(here), f" of node {node}" if nodes else ""
    found = {
        "device": (pairs, f"copies between devices{on} (GB/s)"),
        "node": (nodes, "all-reduce between nodes (GB/s)"),
    }
    maps = [what for what, (links, _) in found.items() if links]
    figure, panels = layout.panels(len(maps) + 2 if maps else 1)
    for what, axes in zip(maps, panels, strict=False):
        links, title = found[what]
        values = {pair: rate.value for pair, rate in links.items()}
        charts.heat_map(values, axes, odd=_odd(links), width=MAP, what=what, title=title)
    _draw_strips(strips, panels[len(maps)], alone=not pairs)
    layout.panel_of(panels[len(maps)]).height = max(2.4, ROW * len(strips) + 1.1)
    if maps:
        _draw_collectives(results, panels[-1])
    return figure


def _links(result: Result, part: str, ends: tuple[str, str]) -> dict[int, dict[Pair, Rate]]:
    """From one end to another, one at a time, at the largest size, by the node that measured them."""
    found = dict[int, dict[Pair, Rate]]()
    own = [rate for rate in rates(result) if rate.record.case["part"] == part and not rate.record.case.get("at_once")]
    most = max((rate.record.integer("bytes") for rate in own), default=0)
    for rate in own:
        if rate.record.case["bytes"] == most:
            a, b = (rate.record.integer(end) for end in ends)
            found.setdefault(rate.node or 0, {})[a, b] = rate
    return found


def _odd(links: Mapping[Pair, Rate]) -> list[Pair]:
    return [pair for pair, rate in links.items() if rate.is_odd or rate.is_low]


def _strips(result: Result) -> Strips:
    """Of each device its share of the median of its peers or, with one device, of the hardware's limit."""
    own = [rate for rate in rates(result) if rate.part in OF_DEVICES]
    shares = [(rate, rate.value / rate.normal if rate.normal else rate.share) for rate in own]
    return by_key((rate.in_strip, (rate, 100 * share)) for rate, share in shares if share is not None)


def _draw_strips(strips: Strips, axes: Axes, *, alone: bool) -> None:
    """A point for every device; the odd ones have their number. `alone` says that there is only one device."""
    axes.set_title("every device")
    if not strips:
        charts.nothing(axes)
        return
    every = product(enumerate(strips.values()), MODES.items(), (False, True))
    for (row, own), (at_once, mode), odd in every:
        if marks := [(share, rate) for rate, share in own if rate.alone != at_once and rate.is_odd == odd]:
            xs, y = [share for share, _ in marks], row + (OFFSET if at_once else -OFFSET)
            colour = charts.ODD if odd else style.PALETTE[0]
            face, name = "none" if at_once else colour, None if odd else mode
            axes.plot(xs, [y] * len(xs), "o", ms=4, color=colour, markerfacecolor=face, label=name)
            if odd:
                places = [(rate.node, rate.place[0].device) for _, rate in marks]
                text = ", ".join(f"{device}" if node is None else f"{node}:{device}" for node, device in places)
                axes.text(min(xs), y, f"{text}  ", ha="right", va="center", fontsize=charts.SMALLEST)
    shares = [share for own in strips.values() for _, share in own]
    # At least a tenth to either side, so that a healthy scatter looks small, and room for the odd ones' numbers.
    low, high = (0.0, 105.0) if alone else (min(85.0, 1.15 * min(shares) - 15), 105.0)
    axes.set(xlim=(low, max(high, 1.02 * max(shares))), ylim=(len(strips) - 0.5, -0.5))
    axes.set_xlabel("% of the hardware's limit" if alone else "% of the median of its peers")
    axes.locator_params(axis="x", nbins=5)
    axes.set_yticks(range(len(strips)), strips, fontsize=charts.SMALLEST)
    if not alone:
        axes.axvline(100 * NOTABLE, color=style.INK, linewidth=0.8, linestyle="--")
        layout.panel_of(axes).legend = True


def _draw_collectives(results: Sequence[Result], axes: Axes) -> None:
    """Bus bandwidth over the number of devices at the largest size, of three collectives; of several platforms one."""
    shown = [
        points.rated(result, r, limits.bus_bytes(r) / 1e9, series=each.replace("_", "-"), x=r.integer("devices"))
        for result in results
        for each in (DRAWN[:1] if len(results) > 1 else DRAWN)
        for r in formatting.largest(result.select("time", part="collective", collective=each), "bytes")
    ]
    charts.curves(shown, axes, unit="GB/s", xlabel="devices", ylabel="bus bandwidth (GB/s)", title="collectives")
    if shown:
        axes.set_xscale("log", base=2)
        charts.ticks(axes, charts.numbers(shown))
        axes.set_ylim(bottom=0)


def findings(result: Result) -> list[Finding]:
    """The faults, or that there is none; then what the parts reach, and what no vendor's figure says anything of."""
    return [*_faults(result), *_reached(result), *_under_load(result), *_without_figures(result)]


def judge(result: Result) -> Iterator[Judgement]:
    """Each fault, then what is normal, one row for all that are alike."""
    for alert in alerts(result):
        yield Judgement(
            what=alert.what,
            value=alert.value,
            expectation=alert.normal,
            verdict=alert.verdict,
            advice=alert.advice,
            fault=alert,
        )
    normal = [verdict for verdict in verdicts(result) if verdict.verdict == "normal" and verdict.share is not None]
    links = (Kind.PAIR, Kind.PCIE_PAIR)
    alike = by_key((f"{verdict.part}, " * (verdict.kind in links) + verdict.measured, verdict) for verdict in normal)
    for what, own in alike.items():
        shares = sorted(verdict.share for verdict in own if verdict.share is not None)
        middle = min(own, key=lambda verdict: abs((verdict.share or 0) - median(shares)))
        value = middle.value
        if len(own) > 1:
            value += f" ({len(own)} alike, {formatting.percent(shares[0])} to {formatting.percent(shares[-1])})"
        yield Judgement(what=what, value=value, expectation=middle.normal, verdict="normal")


def published(result: Result) -> Iterator[Ours]:
    """Products on one device while the others wait, beside the same card's: the median of all devices."""
    alone = result.select("time", part="compute", at_once=False)
    for (dtype, size), own in by_key(((r.text("dtype"), r.integer("size")), r) for r in alone).items():
        rate, card = median(map(limits.product_rate, own)), platforms.device_name(result)
        yield Ours(metric=f"{dtype}_matmul_throughput", value=rate, settings={"size": size}, gpu=card)


def _faults(result: Result) -> Iterator[Finding]:
    found = alerts(result)
    for alert in found:
        text = f"{alert.text[0].upper()}{alert.text[1:]}. What to look at: {alert.advice}."
        yield Finding(text, Topic.ALERT, counted(len(found), "alert") if alert is found[0] else "")
    if not found:
        judged = [verdict for verdict in verdicts(result) if verdict.verdict == "normal"]
        limited = any(verdict.share is not None for verdict in judged)
        beside = "with one another and with the hardware's limits" if limited else "with one another"
        passed = f"all {len(judged)} checks" if len(judged) > 1 else "the only check"
        text = f"Healthy: {passed} passed: rates, links and counters, compared {beside}."
        text = text if judged else "Nothing could be judged: there is nothing to compare with."
        text += " CPU workers stand in for GPUs." * result.emulated
        yield Finding(text, Topic.HEALTHY, "healthy" if judged else "nothing to compare with")


def _reached(result: Result) -> Iterator[Finding]:
    """What the devices reach in bfloat16, each alone, and what all of them reach together in an all-reduce."""

    def limited(rate: Rate) -> str:
        return f", {rate.limit.share(rate.value)}" if rate.limit else ""

    products = STANDS_FOR[Part.COMPUTE][0]  # in bfloat16
    if alone := [rate for rate in rates(result) if rate.record.matches(**products)]:
        low, high = (extreme(alone, key=lambda rate: rate.value) for extreme in (min, max))
        span = low.text if low.text == high.text else f"{low.number(low.value)} to {high.text}"
        text = f"Products in bfloat16 run at {span} on {counted(len(alone), 'device')}{limited(high)}."
        yield Finding(text, Topic.PRODUCTS_OF_HEALTH)
    if reduced := [rate for rate in rates(result) if rate.record.matches(**ALL_REDUCE, nodes=None)]:
        most = max(reduced, key=lambda rate: (rate.record.integer("devices"), rate.value))
        text = f"The {most.measured} reaches {most.text} of bus bandwidth{limited(most)}."
        yield Finding(text, Topic.ALL_REDUCE_OF_HEALTH)


def _under_load(result: Result) -> Iterator[Finding]:
    if courses := [course(record) for record in result.select("time", part="load")]:
        fell = [each.fell_after for each in courses if each.fell_after is not None]
        longest = formatting.seconds(max(each.seconds for each in courses))
        devices = f"{len(fell)} of {len(courses)} devices" if fell else "no device"
        first = f", the first after {formatting.seconds(min(fell))}" if fell else ""
        yield Finding(f"Under {longest} of load {devices} became 5 % slower{first}.", Topic.UNDER_LOAD)


def _without_figures(result: Result) -> Iterator[Finding]:
    lacking: dict[str, dict[str, None]] = {}
    for rate in rates(result) if result.environment["gpus"] else ():
        products = f"{rate.record.case.get('dtype')} products"
        what = {Kind.COMPUTE: products, Kind.MEMORY: "memory", Kind.PAIR: "NVLinks"}.get(rate.kind)
        if what and rate.alone and not rate.limit and not is_small(rate.record):
            (view,) = (view for view in views(result) if view.node == rate.node)
            gpu = rate.record.integer("device" if "device" in rate.record.case else "source")
            lacking.setdefault(str(view.result.environment["gpus"][gpu]["name"]), {})[what] = None
    for name, whats in lacking.items():
        several = sum(gpu["name"] == name for gpu in result.environment["gpus"]) > 1
        judged = "they were compared with one another only" if several else "they were not judged"
        text = f"gpu_specs.yaml has no vendor's figure of {name} for {' and '.join(whats)}, so {judged}."
        yield Finding(text, Topic.NO_VENDOR_FIGURE)


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A part of the machine in a few words: what stands for it or, if something is wrong, what is worst.

    `share` is that of the hardware's limit, if that is known.
    """

    part: Part
    verdict: str
    symbol: str
    number: str
    value: float | None
    what: str
    share: float | None
    detail: str

    @property
    def trouble(self) -> bool:
        return self.verdict not in FINE


def tiles(result: Result) -> list[Tile]:
    """One for every part of which anything is known."""
    by_part = by_key((verdict.part, verdict) for verdict in verdicts(result))
    return [_tile(part, by_part[part], rates(result)) for part in Part if part in by_part]


def _tile(part: Part, own: Sequence[Verdict], found: Sequence[Rate]) -> Tile:
    # What could not be judged does not make a tile of it, as long as something could.
    judged = [verdict for verdict in own if verdict.verdict != "not judged"]
    word = min((verdict.verdict for verdict in judged), key=WORDS.index, default="not judged")
    number, value, what, share = "", None, "", None
    bad = [rate for rate in found if rate.part is part and (rate.is_odd or rate.is_low)]
    # Alone a device has a limit, and a latency is no rate.
    if worst := min(
        bad, key=lambda rate: (rate.kind is Kind.LATENCY, not rate.alone, _beside_normal(rate)), default=None
    ):
        number, value, share = worst.text, worst.value, worst.share
        what = ", ".join(filter(None, (worst.who, worst.measured)))
    elif standing := _standing(part, found):
        value, tops = median(rate.value for rate in standing), {rate.limit and rate.limit.rate for rate in standing}
        limit = tops.pop() if len(tops) == 1 else None
        number, what = standing[0].in_words(value), standing[0].in_tile
        share = value / limit if limit and not any(rate.is_above for rate in standing) else None
    fine = f"{sum(verdict.fine for verdict in judged)} of {len(judged)} normal" if judged else "nothing to compare with"
    told = {"verdict": word, "symbol": SYMBOLS[word], "detail": fine}
    return Tile(part=part, number=number, value=value, what=what, share=share, **told)


def _beside_normal(rate: Rate) -> float:
    """Its share of what is normal for its peers or, without any, of its limit."""
    normal = rate.normal or (rate.limit.rate if rate.limit else None)
    return rate.value / normal if normal else 1.0


def _standing(part: Part, rates: Sequence[Rate]) -> list[Rate]:
    """The rates of what stands for a part: of every device or pair, at the largest size and number of devices."""
    able = [rate for rate in rates if rate.part is part and rate.kind is not Kind.LATENCY]
    per_case = ([rate for rate in able if rate.record.matches(**case)] for case in STANDS_FOR[part])
    found = next((own for own in per_case if own), [])
    sizes = [(rate.record.case.get("devices") or 0, rate.record.case.get("bytes") or 0) for rate in found]
    return [rate for rate, size in zip(found, sizes, strict=True) if size == max(sizes)]


def topology(result: Result) -> dict[str, list[list[str]] | list[tuple[str, str]]]:
    """How each pair of GPUs is linked, in nvidia-smi's words, and what these mean; no rows with fewer than two."""
    rows, every = limits.link_matrix(result), range(len(result.environment["gpus"]))
    used = {"NV" if limits.nvlinks(result, a, b) else rows[a][b] for a in every for b in every} if rows else set()
    return {"rows": rows, "legend": [(word, meaning) for word, meaning in limits.LINK_LEGEND.items() if word in used]}


def nightly(result: Result) -> Iterator[Number]:
    """Of each part the slowest device, pair or node, which a training step waits for.

    No label names a device, so that each stays one number.
    """
    products = result.select("time", part="compute", at_once=False)
    for dtype, own in by_key((record.text("dtype"), record) for record in products).items():
        slowest = max(own, key=lambda r: r.median)
        amount = limits.product_rate(slowest) * slowest.median
        yield Number(f"{dtype} products, slowest device", slowest, amount, "TFLOP/s")
    copies = result.select("time", part="memory", access="copy", at_once=False)
    yield from _slowest(copies, "memory copy, slowest device", passes=2)
    for direction, way in (("to device", "to"), ("to host", "from")):
        own = result.select("time", part="host link", direction=direction, memory="pinned", at_once=False)
        yield from _slowest(own, f"host {way} slowest device")
    yield from _slowest(result.select("time", part="device link", at_once=False), "slowest pair of devices")
    yield from bus_bandwidths(result.select("time", **ALL_REDUCE))
    yield from _slowest(result.select("time", part="node pair"), "all-reduce of the slowest pair of nodes", rate=False)
    yield from _slowest(result.select("time", part="storage"), "reading data_dir")


def _slowest(records: Sequence[Record], label: str, *, passes: int = 1, rate: bool = True) -> Iterator[Number]:
    """The slowest of those at the largest size; `passes` is how often each byte crosses the interface."""
    if largest := formatting.largest(records, "bytes"):
        slowest = max(largest, key=lambda r: r.median)
        size = slowest.integer("bytes")
        named = f"{label}, {formatting.count_bytes(size)}"
        yield Number(named, slowest, passes * size / 1e9, "GB/s") if rate else Number(named, slowest)
