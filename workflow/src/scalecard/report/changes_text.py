"""A comparison between like hardware in words: a fact, a kind of work, and all of it as one sentence.

'After driver 575 -> 580: all-reduce 7 to 8 % slower in 27 of 27 cases; training unchanged.' It begins with what differs
and goes on with what became slower or faster, then with the rest. Nothing is called so but by the cases' own verdicts.

A kind of work is an experiment; parts of `health` that changed, which share no more than a name, are one each. The
verdicts are those of the cases, which hold among all of them; a group has none of its own.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median
from typing import Any

from scalecard.analysis import by_key, formatting
from scalecard.analysis.compare import (
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

# What is likely to be the cause comes first.
SOFTWARE = (
    *("driver", "torch", "cuda", "nccl", "nccl_process_group", "nccl_paths", "cudnn", "container", "container_engine"),
    *("packages", "commit", "lock", "python", "os"),
)
NAMES = {"gpus": "GPUs", "cpu": "CPU", "num_devices": "devices", "gpu_uuid_hashes": "boards"}  # of a machine's facts
DIGESTS = ("commit", "container")
DIFFERENT_WORKLOAD = "different workload"
MOST_CHANGES, MOST_GROUPS, MOST_NAMES = 3, 5, 4
TRAINING = {*toc.PAGES["Learn"], "strategies", "tuning"}
CHANGED = ("slower", "faster")


class Outcome(Enum):
    """Outcomes of a group of cases, in words where these need no numbers."""

    CHANGED = "some became slower or faster"
    UNCHANGED = "unchanged"
    PARTLY_UNCHANGED = "some are the same, the others cannot be told"
    UNCLEAR = "cannot be told"
    TOO_FEW_SAMPLES = "cannot be told (too few samples)"
    NOT_COMPARED = f"not compared ({DIFFERENT_WORKLOAD})"


@dataclass(frozen=True)
class Group:
    """Cases of one kind, or of several that are told together. `median` and `span` are of B / A over the cases."""

    label: str
    rows: Sequence[Row]

    @property
    def compared(self) -> list[Row]:
        return [row for row in self.rows if row.ratio]

    @property
    def ratios(self) -> list[float]:
        """B / A of each case that was compared, the smallest first."""
        return sorted(row.ratio.value for row in self.rows if row.ratio)

    @property
    def median(self) -> float | None:
        """None if nothing was compared."""
        return median(self.ratios) if self.ratios else None

    @property
    def changed(self) -> bool:
        return any(row.verdict in CHANGED for row in self.rows)

    def count(self, verdict: str) -> int:
        return sum(row.verdict == verdict for row in self.rows)

    @property
    def outcome(self) -> Outcome:
        if not self.compared:
            return Outcome.NOT_COMPARED
        if self.changed:
            return Outcome.CHANGED
        if same := self.count("same"):
            return Outcome.UNCHANGED if same == len(self.compared) else Outcome.PARTLY_UNCHANGED
        return Outcome.UNCLEAR if any(row.tested for row in self.rows) else Outcome.TOO_FEW_SAMPLES

    @property
    def span(self) -> str:
        """'+7.0 % to +8.1 %', over the cases; '' of one case, or of none."""
        ratios = self.ratios
        return formatting.changes(ratios[0], ratios[-1]) if len(ratios) > 1 else ""


def grouped(rows: Sequence[Row], label: Callable[[str], str] = toc.label) -> list[Group]:
    """A group for each kind of work, those that changed the most first, then in the page's order.

    `label` names an experiment.
    """
    names = toc.in_order(sorted({row.experiment for row in rows}))
    own = {name: Group(label(name), [row for row in rows if row.experiment == name]) for name in names}
    found = [part for name, group in own.items() for part in (_parts(group) if name == "health" else [group])]
    return sorted(found, key=_by_change)


def _together(groups: Sequence[Group]) -> Group:
    return Group(_listed([group.label for group in groups]), [row for group in groups for row in group.rows])


def _listed(parts: Sequence[str]) -> str:
    """'a, b and c'."""
    return " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def _parts(health: Group) -> list[Group]:
    """The parts of which a case changed, and one group of the others."""
    parts = by_key((row.case.get("part"), row) for row in health.rows)
    changed = [part for name, rows in parts.items() if (part := Group(f"{health.label} ({name})", rows)).changed]
    others = [row for row in health.rows if not any(row in part.rows for part in changed)]
    label = f"{health.label} (other parts)" if changed else health.label
    return [*changed, Group(label, others)] if others else changed


def _by_change(group: Group) -> tuple[int, float]:
    """What became slower comes first, then what became faster, each by how much; what was not compared is last."""
    if not group.changed:
        return (2 if group.median else 3), 0.0
    size = abs(math.log(group.median)) if group.median else 0.0
    return (0 if group.count("slower") >= group.count("faster") else 1), -size


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
    shown, others = changed[:MOST_GROUPS], changed[MOST_GROUPS:]
    clauses = [f"{group.label} {outcome(group)}" for group in [*shown, *([_together(others)] if others else [])]]
    clauses += _unchanged(rest) if changed else _nothing_changed(rest)
    return f"{occasion(found.changes)}: {'; '.join(clauses)}."


def occasion(changes: Sequence[Change]) -> str:
    """'After driver 575 -> 580 and torch 2.9 -> 2.10'; a list of boards says no more than that they are others."""
    order = {key: place for place, key in enumerate(SOFTWARE)}
    by_cause = sorted(changes, key=lambda each: order.get(each.fact.key, len(order)))
    said = ["other boards" if each.fact == BOARDS else change(each) for each in by_cause[:MOST_CHANGES]]
    if (more := len(changes) - MOST_CHANGES) > 0:
        said.append(counted(more, "more change"))
    return f"After {_listed(said)}" if said else "In the same environment"


def change(one: Change) -> str:
    """'driver 575 -> 580'."""
    key, words = one.fact.key, formatting.spaced(one.fact.key)
    named = {Scope.MACHINE: NAMES.get(key, key), Scope.WORKLOAD: key, Scope.GPU: f"GPU {words}"}
    return f"{named.get(one.fact.scope, words)} {_value(one.fact, one.old)} -> {_value(one.fact, one.new)}"


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
    if group.outcome is Outcome.CHANGED:
        return " and ".join(_of_verdict(group, verdict) for verdict in CHANGED if group.count(verdict))
    if group.outcome is Outcome.PARTLY_UNCHANGED:
        whole = counted(len(group.compared), "case")
        return f"unchanged in {group.count('same')} of {whole}, the others cannot be told"
    return str(group.outcome.value)


def _of_verdict(group: Group, verdict: str) -> str:
    """By which times changed; a digit more where whole per cents would be none."""
    changes = sorted(100 * abs(row.ratio.value - 1) for row in group.rows if row.ratio and row.verdict == verdict)
    digits = 0 if changes[0] >= 0.95 else 1
    span = " to ".join(dict.fromkeys(f"{each:,.{digits}f}" for each in (changes[0], changes[-1])))
    return f"{span} % {verdict} in {len(changes)} of {counted(len(group.compared), 'case')}"


def _with_training_as_one(groups: Sequence[Group]) -> list[Group]:
    """Kinds of training are one, if there are several and none of them changed."""
    training = [g for g in groups if g.compared and {row.experiment for row in g.rows} <= TRAINING]
    if len(training) < 2 or any(group.changed for group in training):
        return list(groups)
    return [*(group for group in groups if group not in training), replace(_together(training), label="training")]


def _nothing_changed(groups: Sequence[Group]) -> Iterator[str]:
    """In how many cases that is known, in how many it cannot be told, and what was not compared."""
    every = _together(groups)
    same, unclear = every.count("same"), every.count("unclear")
    if same:
        yield f"nothing became slower or faster in {counted(same, 'case')}"
        if unclear:
            yield f"{unclear} more cannot be told"
    elif unclear:
        few = "" if any(row.tested for row in every.rows) else " (too few samples)"
        yield f"whether anything became slower or faster cannot be told in {counted(unclear, 'case')}{few}"
    yield from _unchanged([group for group in groups if not group.compared])


def _unchanged(groups: Sequence[Group]) -> Iterator[str]:
    """One clause for all that are unchanged, one for all of which a part is, one for what cannot be told.

    More names than a sentence can hold are not listed.
    """
    kinds = by_key((group.outcome, group) for group in groups)
    for own in sorted(kinds.values(), key=lambda own: _doubt(_together(own))):
        one, others = _together(own), f"{len(own)} other experiments" if len(kinds) > 1 else "everything else"
        yield f"{one.label if len(own) <= MOST_NAMES else others} {outcome(one)}"


def _doubt(group: Group) -> float:
    """0 for what is unchanged, 1 for what cannot be told, and 2 for what was not compared."""
    return 1 - group.count("same") / len(group.compared) if group.compared else 2.0
