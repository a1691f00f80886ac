"""The first screen: which machine, is it healthy, how does it scale, what to use, and how far to trust it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from scalecard.analysis import by_key, formatting, provenance
from scalecard.analysis.health.alerts import cause_of, verdicts
from scalecard.analysis.health.verdict import EXPERIMENT as HEALTH
from scalecard.analysis.health.verdict import Place
from scalecard.analysis.limits import Judgement
from scalecard.analysis.platforms import LeftOut, attempt, nickname
from scalecard.analysis.setting_gains import ladders
from scalecard.analysis.slowdowns import slowdowns
from scalecard.analysis.step_records import time_per_unit
from scalecard.analysis.strategy_choice import choose, strategy_runs, timed, workloads
from scalecard.figures.svg import sparkline
from scalecard.progress import counted
from scalecard.records.axes import combination
from scalecard.records.record import Reason, Result
from scalecard.report import advice_text, toc
from scalecard.report.section import Section
from scalecard.report.sections import Topic
from scalecard.report.sections.strategies import with_recipe

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A workload on the most devices: its fastest strategy with the same total batch, and with one that grows.

    `line` is the first one's curve as an inline SVG; `use` is the gist of the advice, of GPUs alone.
    """

    workload: str
    devices: str
    same_batch: str
    growing_batch: str
    line: str
    use: str


@dataclass(frozen=True, kw_only=True)
class FirstScreen:
    """What a reader of ten seconds sees. Without GPUs it is a trial: no advice, and no verdicts on health.

    `failed` has, by experiment, what failed that should not have. `alerts` are faults of the machine, one each, that
    `leading` found; which values of other experiments are low is in `low_elsewhere`. `tuned`, where nothing scales:
    what settings bring a workload on its one GPU.
    """

    nickname: str
    facts: list[str]
    trial: bool
    verdict: str
    leading: str
    failed: list[tuple[str, str]]
    alerts: list[Judgement]
    low_elsewhere: list[tuple[str, list[Judgement]]]
    tiles: list[Any]
    scaling: list[Scaling]
    tuned: list[tuple[str, str]]
    slower: list[str]
    trust: list[str]


def of(current: Sequence[Section], left_out: list[LeftOut]) -> FirstScreen:
    """Of one platform's sections; what cannot be said is added to what is left out."""

    def said(what: str, say: Callable[[], Iterable[T]]) -> list[T]:
        return attempt(f"{what} on the first screen", lambda: list(say()), left_out) or []

    results = {section.name: section.result for section in current}
    tuning = results.get("tuning")
    every, strategies = list(results.values()), results.get("strategies")
    trial = any(result.emulated for result in every)
    trouble = _by_cause(current)
    # What no fault explains is said in a line.
    first = next((name for name in (HEALTH, *trouble) if trouble.get(name)), "")
    scaling = said("scaling", lambda: _scaling(strategies) if strategies else ())
    return FirstScreen(
        nickname=nickname(every),
        facts=_facts(every),
        trial=trial,
        verdict="" if trial else _verdict(current, trouble),
        leading=first or HEALTH,
        failed=[(section.name, said) for section in current for said in (*faults_of(section.result), *_lost(section))],
        alerts=trouble.get(first, []),
        low_elsewhere=[(name, own) for name, own in trouble.items() if own and name != first],
        tiles=[] if trial else [tile for section in current for tile in section.tiles],
        scaling=scaling,
        tuned=said("tuning", lambda: _tuned(tuning) if tuning and not (scaling or trial) else ()),
        slower=said("what is slower", lambda: slowdowns(results)),
        trust=_trust(every, trial=trial),
    )


def _by_cause(current: Sequence[Section]) -> dict[str, list[Judgement]]:
    """What is not as it should be, by experiment: what a fault that health found explains is listed with that."""
    trouble = {section.name: [each for each in section.judgements if each.is_trouble] for section in current}
    nodes = any(section.result.environment["nodes"] for section in current if section.name == HEALTH)
    node = 0 if nodes else None  # which measures what needs one
    health = trouble.get(HEALTH, [])
    faults = [each.fault for each in health if each.fault]
    shown: list[list[str]] = [[] for _ in faults]
    for name in sorted(trouble.keys() - {HEALTH}, key=toc.label):
        causes = [cause_of(faults, j.kind, tuple(Place(node, d) for d in j.devices)) for j in trouble[name]]
        for number in {cause for cause in causes if cause is not None}:
            shown[number].append(f"{toc.label(name)} ({causes.count(number)})")
        trouble[name] = [own for own, cause in zip(trouble[name], causes, strict=True) if cause is None]
    return trouble | {HEALTH: [replace(own, shows_in=tuple(places)) for own, places in zip(health, shown, strict=True)]}


def _facts(results: Sequence[Result]) -> list[str]:
    environment = results[0].environment
    driver = environment["machine"]["driver"]
    return [provenance.days(results), *([f"driver {driver}"] if driver else []), f"PyTorch {environment['torch']}"]


def _verdict(current: Sequence[Section], trouble: Mapping[str, Sequence[Judgement]]) -> str:
    """On the hardware: 'Healthy: all 483 checks passed', or how many faults or low values there are."""
    checked = [
        verdict
        for section in current
        if section.name == HEALTH
        for verdict in verdicts(section.result)
        if verdict.verdict != "not judged"
    ]
    passed = sum(verdict.fine for verdict in checked)
    all_passed = f"all {len(checked)} checks passed" if len(checked) > 1 else "1 check passed"
    if faults := trouble.get(HEALTH):
        return f"{counted(len(faults), 'fault')} found; {passed} of {counted(len(checked), 'check')} passed"
    if less := sum(map(len, trouble.values())):
        return f"{counted(less, 'value')} less than normal" + (f", though {all_passed}" if checked else "")
    return f"Healthy: {all_passed}" if checked else ""


def _trust(results: Sequence[Result], *, trial: bool) -> list[str]:
    """The reasons that matter at once; the page shows the warnings by themselves, and no CPU is watched."""
    said = [provenance.proofs(results), *([] if trial else [provenance.throttling(results)])]
    late = sum(record.reason is Reason.NO_TIME for result in results for record in result.records)
    return [*said, *([f"{counted(late, 'case')} left out for lack of time."] if late else [])]


def _lost(section: Section) -> list[str]:
    """What several devices did not learn; the alerts of health are shown by themselves."""
    return [found.text for found in section.findings if found.topic is Topic.ALERT and section.name != HEALTH]


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
    """Of each workload that was timed on several devices, or fits on several alone."""
    per_workload = {
        workload: [run for run in strategy_runs(result, workload) if run.devices > 1] for workload in workloads(result)
    }
    devices = {
        name: max((run.devices for run in timed(runs, "strong")), default=0) for name, runs in per_workload.items()
    }
    for workload, runs in per_workload.items():
        most, use = devices[workload], "" if result.emulated else advice_text.gist(result, workload)
        choice, grown = (choose([run for run in runs if run.devices == most], way) for way in ("strong", "weak"))
        same, line = "", ""
        if choice and choice.best.gain:
            name, gain = choice.best.strategy, choice.best.gain
            on_fewer = f" on {most}" if most < max(devices.values()) else ""
            same = f"{formatting.about(gain)}{on_fewer}, {formatting.percent(gain.value / most)} of ideal ({name})"
            own = {run.devices: run.gain.value for run in timed(runs, "strong") if run.strategy == name and run.gain}
            line = sparkline([(1, 1.0), *sorted(own.items())])
        if same or (use and runs):
            yield Scaling(
                workload=with_recipe(result, workload),
                devices=f"{max(devices.values())} {'CPU ranks' if result.emulated else 'GPUs'}",
                same_batch=same,
                growing_batch=f"{formatting.percent(grown.best.efficiency.value)} of ideal ({grown.best.strategy})"
                if grown and grown.best.efficiency
                else "",
                line=line,
                use=use,
            )


def _tuned(result: Result) -> Iterator[tuple[str, str]]:
    """Each workload, and its fastest settings on one device at its own batch: '1.85x ± 0.01 with bf16 + compile'."""
    for ladder in ladders(result):
        best = ladder.best()
        if ladder.devices == 1 and time_per_unit(best, ladder.base).verdict == "faster":
            brought = f"{formatting.about(ladder.gain(best))} with {combination(best.case)}, {ladder.name} being 1x"
            yield ladder.workload, brought
