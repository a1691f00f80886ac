"""What a reader is told of a machine's health: sentences, and the rows of the table of expectations."""

from collections.abc import Iterator, Sequence
from statistics import median

from scalecard.analysis import formatting
from scalecard.analysis.expectations import Judgement
from scalecard.analysis.health import judge_state, measured_rates, rate_text
from scalecard.analysis.health.alerts import alerts, verdicts
from scalecard.analysis.health.measured_rates import Rate
from scalecard.analysis.health.per_node import views
from scalecard.analysis.health.verdict import Kind, Verdict
from scalecard.progress import counted
from scalecard.records.record import Result
from scalecard.report.sections import Finding, Topic


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
        text = f"The {rate_text.measured(most)} reaches {most.text} of bus bandwidth{_share(most)}."
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
