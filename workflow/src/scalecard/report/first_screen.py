"""The first screen: which machine, is it healthy, how does it scale, what to use, and how far to trust it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from scalecard.analysis import by_key, formatting, provenance
from scalecard.analysis.health.verdict import EXPERIMENT as HEALTH
from scalecard.analysis.platforms import LeftOut, attempt, nickname
from scalecard.analysis.strategy_choice import choose, slowdowns, strategy_runs, timed, workloads
from scalecard.figures.svg import sparkline
from scalecard.progress import counted
from scalecard.records.record import Result
from scalecard.report import advice_text
from scalecard.report.section import Section
from scalecard.report.sections import Topic
from scalecard.report.sections.strategies import with_recipe

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """How a workload scales: 'DDP: 5.0x on 8 GPUs, 63 %', and the line behind it as an inline SVG."""

    workload: str
    text: str
    line: str


@dataclass(frozen=True, kw_only=True)
class FirstScreen:
    """What a reader of ten seconds sees. Without GPUs it is a trial: no advice, and no verdicts on health.

    `failed` has, by experiment, what failed that should not have.
    """

    nickname: str
    facts: list[tuple[str, str]]
    trial: bool
    failed: list[tuple[str, str]]
    tiles: list[Any]
    scaling: list[Scaling]
    slower: list[str]
    use: list[str]
    trust: list[str]


def of(current: Sequence[Section], left_out: list[LeftOut]) -> FirstScreen:
    """Of one platform's sections; what cannot be said is added to what is left out."""

    def said(what: str, say: Callable[[], Iterable[T]]) -> list[T]:
        return attempt(f"{what} on the first screen", lambda: list(say()), left_out) or []

    results = {section.name: section.result for section in current}
    trial = any(result.emulated for result in results.values())
    strategies = results.get("strategies")
    return FirstScreen(
        nickname=nickname(list(results.values())),
        facts=_facts(list(results.values())),
        trial=trial,
        failed=[(name, said) for name, result in results.items() for said in faults_of(result)],
        tiles=[] if trial else [tile for section in current for tile in section.tiles],
        scaling=said("scaling", lambda: _scaling(strategies) if strategies else ()),
        slower=said("what is slower", lambda: slowdowns(results)),
        use=said("what to use", lambda: _use(strategies) if strategies and not trial else ()),
        trust=provenance.reasons_to_trust(list(results.values())),  # the page shows the warnings by themselves
    )


def _facts(results: Sequence[Result]) -> list[tuple[str, str]]:
    environment = results[0].environment
    machine, runs = environment["machine"], [len(r.samples) for each in results for r in each.records if r.samples]
    few, many = min(runs, default=0), max(runs, default=0)
    facts = [
        ("Measured", provenance.days(results)),
        ("Driver", machine["driver"]),
        ("PyTorch", environment["torch"]),
        ("Container", environment["container_engine"] or "none"),
        ("Processes", f"{few} to {many} per case" if few != many else f"{many} per case"),
    ]
    return [(name, str(value)) for name, value in facts if value]


def faults_of(result: Result) -> list[str]:
    """A sentence per reason, with the first case as an example; those of a GPU's health are alerts of its own."""
    own_alerts = result.experiment == HEALTH and not result.emulated
    faults = [] if own_alerts else [record for record in result.records if record.is_fault]
    said = []
    for reason, (first, *more) in by_key((str(record.reason), record) for record in faults).items():
        axes = ", ".join(f"{axis} {formatting.setting(axis, value)}" for axis, value in first.case.items())
        others = f", and {counted(len(more), 'more case')}" if more else ""
        ended = f"{first.note[:1].upper()}{first.note[1:]}."
        said.append(f"{reason.capitalize()}: {axes}{others}: {first.note}." if axes else ended)
    return said


def _scaling(result: Result) -> Iterator[Scaling]:
    """Of each workload, the strategy that is the fastest on the most devices at a fixed total batch."""
    for workload in workloads(result):
        several = [run for run in timed(strategy_runs(result, workload), "strong") if run.devices > 1]
        most = max((run.devices for run in several), default=0)
        choice = choose([run for run in several if run.devices == most], "strong")
        if choice and choice.best.gain:
            name, gain = choice.best.strategy, choice.best.gain
            own = {run.devices: run.gain.value for run in several if run.strategy == name and run.gain}
            what, share = "CPU ranks" if result.emulated else "GPUs", formatting.percent(gain.value / most)
            text = f"{name}: {formatting.about(gain)} on {most} {what}, {share} of ideal"
            yield Scaling(
                workload=with_recipe(result, workload), text=text, line=sparkline([(1, 1.0), *sorted(own.items())])
            )


def _use(result: Result) -> list[str]:
    """The gist of the advice; its reasons are in the section."""
    return [
        f"{one.headline}, at a fixed total batch"
        for workload in workloads(result)
        for one in advice_text.sentences(result, workload)
        if one.topic is Topic.ADVICE
    ]
