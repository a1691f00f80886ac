"""A comparison between like hardware in words: a fact, a group of cases, and all of it as one sentence.

'After driver 575 -> 580: all-reduce 7 to 8 % slower in 27 of 27 cases; training unchanged.' It begins with what differs
and goes on with what became slower or faster, then with the rest. Nothing is called so but by the cases' own verdicts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from scalecard.analysis import formatting
from scalecard.analysis.comparison.compare import (
    BOARDS,
    GPUS,
    MARGIN_OF_ONE_PROCESS,
    VERDICTS,
    Change,
    Comparison,
    Fact,
    Row,
    Scope,
)
from scalecard.progress import counted
from scalecard.report import toc
from scalecard.report.comparison.summaries import CHANGED, Group, Outcome, grouped, listed, together

# What is likely to be the cause comes first.
SOFTWARE = (
    *("driver", "torch", "cuda", "nccl", "nccl_process_group", "nccl_paths", "cudnn", "container", "container_engine"),
    *("packages", "commit", "lock", "python", "os"),
)
NAMES = {"gpus": "GPUs", "cpu": "CPU", "num_devices": "devices", "gpu_uuid_hashes": "boards"}  # of a machine's facts
DIGESTS = ("commit", "container")
DIFFERENT_WORKLOAD = "different workload"
MOST_CHANGES, MOST_GROUPS, MOST_NAMES = 3, 5, 4
TRAINING = {
    name
    for group in ("Data parallelism", "Model parallelism", "Your models")
    for name in toc.GROUPS[group]
    if name != "input"
}


def headline(found: Comparison) -> str:
    """Name both sides, and count the cases of each verdict."""
    counts = ", ".join(f"{found.count(v)} {v}" for v in VERDICTS if found.count(v))
    return f"B = {found.new} against A = {found.old}, margin {100 * found.margin:g} %: {counts}"


def notes(found: Comparison) -> list[str]:
    """Caveats: differing software, unknown spread, warnings, cases of one side alone."""
    said = [f"What differs: {'; '.join(map(change, found.changes)) or 'nothing that was recorded'}."]
    if not found.spread_known:
        said.append(
            "Not every case was measured in several fresh processes on both sides. For the others, the spread between"
            f" processes is unknown, and only a difference beyond {formatting.percent(MARGIN_OF_ONE_PROCESS)} counts."
            " Set measure.processes to 3 or more to detect smaller ones."
        )
    if lost := sum(row.alone != row.verdict for row in found.rows):
        said.append(
            f"{lost} cases are beyond the margin alone, but not among {found.num_tested} cases: of so many, some"
            " have such an interval by chance. Measure in more processes to learn whether they changed."
        )
    said += [f"{side} was measured with a warning: {warning}." for side, warning in found.warnings]
    said += [f"{number} cases are only in {side}." for side, number in found.only.items() if number]
    if doubtful := sum(bool(row.doubts) for row in found.rows):
        said.append(f"In {doubtful} cases samples drift or resemble their neighbours: their intervals are too narrow.")
    return said


def sentence(found: Comparison) -> str:
    """Between like hardware: what differs, and what became of the cases."""
    groups = _with_training_as_one(grouped(found.rows, toc.inside_sentence))
    changed, rest = [g for g in groups if g.changed], [g for g in groups if not g.changed]
    clauses = [*_changed(changed), *_unchanged(rest)] if changed else _nothing_changed(rest)
    return f"{occasion(found.changes)}: {'; '.join(clauses)}."


def occasion(changes: Sequence[Change]) -> str:
    """'After driver 575 -> 580 and torch 2.9 -> 2.10'; a list of boards says no more than that they are others."""
    order = {key: place for place, key in enumerate(SOFTWARE)}
    by_cause = sorted(changes, key=lambda each: order.get(each.fact.key, len(order)))
    said = ["other boards" if each.fact == BOARDS else change(each) for each in by_cause[:MOST_CHANGES]]
    if not said:
        return "In the same environment"
    more = len(changes) - MOST_CHANGES
    return f"After {listed([*said, *([counted(more, 'more change')] if more > 0 else [])])}"


def change(one: Change) -> str:
    """'driver 575 -> 580'."""
    return f"{_name(one.fact)} {_value(one.fact, one.old)} -> {_value(one.fact, one.new)}"


def _name(fact: Fact) -> str:
    match fact.scope:
        case Scope.MACHINE:
            return NAMES.get(fact.key, fact.key)
        case Scope.WORKLOAD:
            return fact.key
    words = formatting.spaced(fact.key)
    return f"GPU {words}" if fact.scope is Scope.GPU else words


def _value(fact: Fact, value: Any) -> str:
    if fact.scope is Scope.WORKLOAD:
        return formatting.setting(fact.key, value, "all")
    if fact.scope is Scope.GPU and isinstance(value, list):
        return ", ".join(_value(fact, each) for each in value)
    if fact == GPUS:
        return f"{value[0]} x {value[1]}" if value[0] else "none"
    text = f"{value:g}" if isinstance(value, float) else formatting.setting("", value)
    return text[:12] if fact.key in DIGESTS and value else text


def reason(row: Row) -> str:
    """Why a case was not compared, or why its own verdict does not hold; '' for all others."""
    if row.differing:
        return different_workload(row.differing)
    return f"beyond the margin alone, but not among {row.among} cases" if row.among else ""


def different_workload(settings: Sequence[Change]) -> str:
    """'different workload: size 4000 -> 2000'."""
    return f"{DIFFERENT_WORKLOAD}: {', '.join(map(change, settings))}"


def outcome(group: Group) -> str:
    """Outcome of the cases: '7 to 8 % slower in 27 of 27 cases', 'unchanged', 'cannot be told'."""
    match group.outcome:
        case Outcome.CHANGED:
            return " and ".join(_of_verdict(group, verdict) for verdict in CHANGED if group.count(verdict))
        case Outcome.UNCHANGED:
            return "unchanged"
        case Outcome.PARTLY_UNCHANGED:
            whole = counted(len(group.compared), "case")
            return f"unchanged in {group.count('same')} of {whole}, the others cannot be told"
        case Outcome.UNCLEAR:
            return "cannot be told"
        case Outcome.TOO_FEW_SAMPLES:
            return "cannot be told (too few samples)"
        case Outcome.NOT_COMPARED:
            return f"not compared ({DIFFERENT_WORKLOAD})"


def _of_verdict(group: Group, verdict: str) -> str:
    """By which times changed; a digit more where whole per cents would be none."""
    ratios = [row.ratio.value for row in group.rows if row.ratio and row.verdict == verdict]
    changes = sorted(100 * abs(ratio - 1) for ratio in ratios)
    digits = 0 if changes[0] >= 0.95 else 1
    span = " to ".join(dict.fromkeys(f"{each:,.{digits}f}" for each in (changes[0], changes[-1])))
    return f"{span} % {verdict} in {len(ratios)} of {counted(len(group.compared), 'case')}"


def _with_training_as_one(groups: Sequence[Group]) -> list[Group]:
    """Kinds of training are one, if there are several and none of them changed."""
    training = [g for g in groups if g.compared and {row.experiment for row in g.rows} <= TRAINING]
    if len(training) < 2 or any(group.changed for group in training):
        return list(groups)
    return [*(group for group in groups if group not in training), replace(together(training), label="training")]


def _nothing_changed(groups: Sequence[Group]) -> Iterator[str]:
    """In how many cases that is known, in how many it cannot be told, and what was not compared."""
    every = together(groups)
    same, unclear = every.count("same"), every.count("unclear")
    if same:
        yield f"nothing became slower or faster in {counted(same, 'case')}"
        if unclear:
            yield f"{unclear} more cannot be told"
    elif unclear:
        few = "" if any(row.tested for row in every.rows) else " (too few samples)"
        yield f"whether anything became slower or faster cannot be told in {counted(unclear, 'case')}{few}"
    yield from _unchanged([group for group in groups if not group.compared])


def _changed(groups: Sequence[Group]) -> Iterator[str]:
    """A clause for each of the most changed, and one for all others."""
    shown, others = groups[:MOST_GROUPS], groups[MOST_GROUPS:]
    for group in [*shown, *([together(others)] if others else [])]:
        yield f"{group.label} {outcome(group)}"


def _unchanged(groups: Sequence[Group]) -> Iterator[str]:
    """One clause for all that are unchanged, one for all of which a part is, one for what cannot be told.

    More names than a sentence can hold are not listed.
    """
    kinds: dict[Outcome, list[Group]] = {}
    for group in groups:
        kinds.setdefault(group.outcome, []).append(group)
    for own in sorted(kinds.values(), key=lambda own: _doubt(together(own))):
        one, others = together(own), f"{len(own)} other experiments" if len(kinds) > 1 else "everything else"
        yield f"{one.label if len(own) <= MOST_NAMES else others} {outcome(one)}"


def _doubt(group: Group) -> float:
    """0 for what is unchanged, 1 for what cannot be told, and 2 for what was not compared."""
    return 1 - group.count("same") / len(group.compared) if group.compared else 2.0
