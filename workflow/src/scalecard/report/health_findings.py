"""What a reader is told of a machine's health: sentences, the table of expectations, and a tile for each part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from scalecard.analysis import formatting
from scalecard.analysis.health import judge_state, measured_rates
from scalecard.analysis.health.alerts import alerts, verdicts
from scalecard.analysis.health.measured_rates import Rate
from scalecard.analysis.health.per_node import views
from scalecard.analysis.health.verdict import FINE, SYMBOLS, WORDS, Kind, Part, Verdict
from scalecard.analysis.limits import Judgement
from scalecard.progress import counted
from scalecard.records.record import Case, Result
from scalecard.report.sections import Finding, Topic

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


def findings(result: Result) -> list[Finding]:
    """The faults, or that there is none; then what the parts reach, and what no vendor's figure says anything of."""
    found = alerts(result)
    return [*_faults(result, found), *_reached(result), *_under_load(result), *_without_figures(result)]


def judgements(result: Result) -> Iterator[Judgement]:
    """Each fault, then what is normal, one row for all that are alike."""
    for alert in alerts(result):
        yield Judgement(
            what=alert.what, value=alert.value, expectation=alert.normal, verdict=alert.verdict, advice=alert.advice
        )
    alike: dict[str, list[Verdict]] = {}
    for verdict in verdicts(result):
        if verdict.verdict == "normal" and verdict.share is not None:
            part = f"{verdict.part}, " if verdict.kind in (Kind.PAIR, Kind.PCIE_PAIR) else ""
            alike.setdefault(part + verdict.measured, []).append(verdict)
    for what, own in alike.items():
        yield _row(what, own)


def _row(what: str, own: Sequence[Verdict]) -> Judgement:
    shares = sorted(verdict.share for verdict in own if verdict.share is not None)
    middle = min(own, key=lambda verdict: abs((verdict.share or 0) - median(shares)))
    value = middle.value
    if len(own) > 1:
        value += f" ({len(own)} alike, {formatting.percent(shares[0])} to {formatting.percent(shares[-1])})"
    return Judgement(what=what, value=value, expectation=middle.normal, verdict="normal")


def _faults(result: Result, found: Sequence[Verdict]) -> Iterator[Finding]:
    for alert in found:
        text = f"{alert.text[0].upper()}{alert.text[1:]}. What to look at: {alert.advice}."
        yield Finding(text=text, headline=counted(len(found), "alert") if alert is found[0] else "", topic=Topic.ALERT)
    if not found:
        judged = [verdict for verdict in verdicts(result) if verdict.verdict == "normal"]
        limited = any(verdict.share is not None for verdict in judged)
        beside = "with one another and with the hardware's limits" if limited else "with one another"
        text = f"Nothing stands out: {len(judged)} rates, links and counters are as they should be, compared {beside}."
        text += " CPU workers stand in for GPUs." * result.emulated
        yield Finding(text=text, headline="healthy" if judged else "nothing to compare with", topic=Topic.HEALTHY)


def _reached(result: Result) -> Iterator[Finding]:
    """What the devices reach in bfloat16, each alone, and what all of them reach together in an all-reduce."""
    rates = measured_rates.rates(result)
    alone = [rate for rate in rates if rate.record.matches(part="compute", dtype="bfloat16", at_once=False)]
    if alone:
        low, *_, high = sorted([*alone, alone[0]], key=lambda rate: rate.value)
        span = low.text if low.text == high.text else f"{low.number(low.value)} to {high.text}"
        text = f"Products in bfloat16 run at {span} on {counted(len(alone), 'device')}{_share(high)}."
        yield Finding(text=text, topic=Topic.PRODUCTS_OF_HEALTH)
    reduced = [rate for rate in rates if rate.record.matches(part="collective", collective="all_reduce", nodes=None)]
    if reduced:
        most = max(reduced, key=lambda rate: (rate.record.integer("devices"), rate.value))
        text = f"The {most.measured} reaches {most.text} of bus bandwidth{_share(most)}."
        yield Finding(text=text, topic=Topic.ALL_REDUCE_OF_HEALTH)


def _share(rate: Rate) -> str:
    return f", {rate.limit.share(rate.value)}" if rate.limit else ""


def _under_load(result: Result) -> Iterator[Finding]:
    """How long the load was, and whether anything slowed down under it."""
    courses = [judge_state.course(record) for record in result.select("time", part="load")]
    if not courses:
        return
    fell = [course.fell_after for course in courses if course.fell_after is not None]
    longest = formatting.seconds(max(course.seconds for course in courses))
    devices = f"{len(fell)} of {len(courses)} devices" if fell else "no device"
    first = f", the first after {formatting.seconds(min(fell))}" if fell else ""
    yield Finding(text=f"Under {longest} of load {devices} became 5 % slower{first}.", topic=Topic.UNDER_LOAD)


def _without_figures(result: Result) -> Iterator[Finding]:
    """Which rates have no limit, because the vendor's figure is not known: nothing but their peers is beside them."""
    lacking: dict[str, dict[str, None]] = {}
    for rate in measured_rates.rates(result) if result.environment["gpus"] else ():
        if what := _without_figure(rate):
            lacking.setdefault(_gpu(result, rate), {})[what] = None
    for name, whats in lacking.items():
        several = sum(gpu["name"] == name for gpu in result.environment["gpus"]) > 1
        judged = "they were compared with one another only" if several else "they were not judged"
        text = f"gpu_specs.yaml has no vendor's figure of {name} for {' and '.join(whats)}, so {judged}."
        yield Finding(text=text, topic=Topic.NO_VENDOR_FIGURE)


def _without_figure(rate: Rate) -> str:
    """'bfloat16 products' if these have no limit for want of a vendor's figure; '' if they have one, or need none."""
    if rate.limit or measured_rates.is_small(rate.record) or not rate.alone:
        return ""
    named = {Kind.COMPUTE: f"{rate.record.case.get('dtype')} products", Kind.MEMORY: "memory", Kind.PAIR: "NVLinks"}
    return named.get(rate.kind, "")


def _gpu(result: Result, rate: Rate) -> str:
    """The name of the GPU that a rate is of."""
    (view,) = (view for view in views(result) if view.node == rate.node)
    axis = "device" if "device" in rate.record.case else "source"
    return str(view.result.environment["gpus"][rate.record.integer(axis)]["name"])


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A part of the machine in a few words; `share` is that of the hardware's limit, as '65 %', or ''."""

    part: Part
    verdict: str
    symbol: str
    number: str
    what: str
    share: str
    detail: str

    @property
    def trouble(self) -> bool:
        """Whether something is wrong with it."""
        return self.verdict not in FINE


def tiles(result: Result) -> list[Tile]:
    """One for every part of which anything is known."""
    every, rates = verdicts(result), measured_rates.rates(result)
    known = [(part, [verdict for verdict in every if verdict.part == part]) for part in Part]
    return [_tile(part, own, rates) for part, own in known if own]


def _tile(part: Part, own: Sequence[Verdict], rates: Sequence[Rate]) -> Tile:
    # What could not be judged does not make a tile of it, as long as something could.
    judged = [verdict for verdict in own if verdict.verdict != "not judged"]
    word = min((verdict.verdict for verdict in judged), key=WORDS.index, default="not judged")
    number, what, share = _number(_standing(part, rates))
    fine = f"{sum(verdict.fine for verdict in judged)} of {len(judged)} normal" if judged else "nothing to compare with"
    return Tile(part=part, verdict=word, symbol=SYMBOLS[word], number=number, what=what, share=share, detail=fine)


def _standing(part: Part, rates: Sequence[Rate]) -> list[Rate]:
    """The rates of what stands for a part: of every device or pair, at the largest size and number of devices."""
    able = [rate for rate in rates if rate.part is part and rate.kind is not Kind.LATENCY]
    per_case = ([rate for rate in able if rate.record.matches(**case)] for case in STANDS_FOR[part])
    found = next((own for own in per_case if own), [])
    sizes = [(rate.record.case.get("devices") or 0, rate.record.case.get("bytes") or 0) for rate in found]
    return [rate for rate, size in zip(found, sizes, strict=True) if size == max(sizes)]


def _number(rates: Sequence[Rate]) -> tuple[str, str, str]:
    """The median of these rates, what it is, and its share of the limit."""
    if not rates:
        return "", "", ""
    first, middle = rates[0], median(rate.value for rate in rates)
    limits = {rate.limit and rate.limit.rate for rate in rates}
    limit = limits.pop() if len(limits) == 1 else None
    return first.in_words(middle), first.in_tile, formatting.percent(middle / limit) if limit else ""
