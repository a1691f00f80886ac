"""What changed between like hardware, as one sentence.

'After driver 575 -> 580: all-reduce 7 to 8 % slower in 27 of 27 cases; training unchanged.' It begins with what differs
and goes on with what became slower or faster, then with the rest. Nothing is called so but by the cases' own verdicts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from scalecard.progress import counted
from scalecard.report import contents
from scalecard.report.comparison.compare import Comparison
from scalecard.report.comparison.groups import Group, grouped, listed, together

# What is likely to be the cause comes first, by the first word of a change.
SOFTWARE = ("driver", "torch", "cuda", "nccl", "cudnn", "container", "packages", "commit", "lock", "python", "os")
MOST_CHANGES, MOST_GROUPS, MOST_NAMES = 3, 5, 4
TRAINING = [
    contents.label(name)
    for group in ("Data parallelism", "Model parallelism", "Your models")
    for name in contents.GROUPS[group]
    if name != "input"
]


def sentence(found: Comparison) -> str:
    """Between like hardware: what differs, and what became of the cases."""
    groups = _with_training_as_one(grouped(found.rows))
    groups = [replace(group, label=_lowered(group.label)) for group in groups]
    changed, rest = [g for g in groups if g.changed], [g for g in groups if not g.changed]
    clauses = [*_changed(changed), *_unchanged(rest)] if changed else _nothing_changed(rest)
    return f"{occasion(found.changes)}: {'; '.join(clauses)}."


def occasion(changes: Sequence[str]) -> str:
    """'After driver 575 -> 580 and torch 2.9 -> 2.10'; a list of boards says no more than that they are others."""
    order = {word: place for place, word in enumerate(SOFTWARE)}
    said = sorted(changes, key=lambda change: order.get(change.split()[0], len(order)))
    said = ["other boards" if change.startswith("boards ") else change for change in said]
    if not said:
        return "In the same environment"
    more = len(said) - MOST_CHANGES
    return f"After {listed([*said[:MOST_CHANGES], *([counted(more, 'more change')] if more > 0 else [])])}"


def software(changes: Sequence[str]) -> list[str]:
    """The changes that are none of hardware."""
    return [change for change in changes if change.split()[0] in SOFTWARE]


def _with_training_as_one(groups: Sequence[Group]) -> list[Group]:
    """Kinds of training are one, if there are several and none of them changed."""
    training = [group for group in groups if group.label in TRAINING and group.compared]
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
        yield f"{group.label} {group.told}"


def _unchanged(groups: Sequence[Group]) -> Iterator[str]:
    """One clause for all that are unchanged, one for all of which a part is, one for what cannot be told.

    More names than a sentence can hold are not listed.
    """
    kinds: dict[str, list[Group]] = {}
    for group in groups:
        kinds.setdefault("in part" if group.told.startswith("unchanged in") else group.told, []).append(group)
    for own in sorted(kinds.values(), key=lambda own: _doubt(together(own))):
        one, others = together(own), f"{len(own)} other experiments" if len(kinds) > 1 else "everything else"
        yield f"{one.label if len(own) <= MOST_NAMES else others} {one.told}"


def _doubt(group: Group) -> float:
    """0 for what is unchanged, 1 for what cannot be told, and 2 for what was not compared."""
    return 1 - group.count("same") / len(group.compared) if group.compared else 2.0


def _lowered(label: str) -> str:
    """The label inside a sentence: 'all-reduce', but 'DistributedDataParallel'."""
    first = label.split()[0]
    return first.lower() + label[len(first) :] if first[1:] == first[1:].lower() else label
