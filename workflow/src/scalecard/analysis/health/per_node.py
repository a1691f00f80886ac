"""A result over several nodes as each node measured it: its own records, its own hardware, and whose parts they are."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from scalecard.records.record import Record, Result


@dataclass(frozen=True)
class Place:
    """A device, another part of the machine by its name or, with neither, a whole node.

    `node` is the number of its node, if there are several. A device is a GPU, or a `worker` that stands in for one.
    """

    node: int | None = None
    device: int | None = None
    part: str = ""
    worker: bool = False

    @property
    def is_node(self) -> bool:
        return self.device is None and not self.part

    @property
    def on_its_node(self) -> str:
        """'GPU 3', 'worker 3', 'storage'; 'node 3' for all of it."""
        if self.device is not None:
            return f"{'worker' if self.worker else 'GPU'} {self.device}"
        return self.part or f"node {self.node}"

    def __str__(self) -> str:
        """ "node 1's GPU 3", or 'GPU 3' if there is only one node."""
        return self.on_its_node if self.node is None or self.is_node else f"node {self.node}'s {self.on_its_node}"


@dataclass(frozen=True)
class View:
    """What one node measured, as a result of its own; `node` is its number, None if there is only one."""

    result: Result
    node: int | None = None

    def part(self, name: str) -> Place:
        """Its storage, its cores ..."""
        return Place(self.node, part=name)

    def device(self, index: int) -> Place:
        """One of its GPUs or workers."""
        return Place(self.node, device=index, worker=self.result.emulated)


@lru_cache(maxsize=4)
def views(result: Result) -> list[View]:
    """One for each node. What all of them measured together is in none of them."""
    described = result.environment["nodes"]
    if not described:
        return [View(result)]
    records: dict[int | None, list[Record]] = {}
    for record in result.records:
        records.setdefault(_whose(record), []).append(record)
    found = []
    for node in range(len(described)):
        cases = [(r, {axis: value for axis, value in r.case.items() if axis != "node"}) for r in records.get(node, [])]
        own = [replace(record, case=case) for record, case in cases]
        found.append(View(replace(result, records=own, environment=_environment(result, node)), node))
    return found


def together(result: Result) -> Result:
    """Only what several nodes measured together, or of one another; nothing if there is only one."""
    several = result.environment["nodes"]
    return replace(result, records=[r for r in result.records if several and _whose(r) is None])


def _whose(record: Record) -> int | None:
    """The node that a record is of; the first one measures what needs ranks on one node only."""
    case = record.case
    # The `node` of these parts is what was measured, not where.
    if case.get("part") in ("node", "node pair") or case.get("nodes"):
        return None
    node = case.get("node") or 0
    assert isinstance(node, int), f"node is {node!r}"
    return node


def _environment(result: Result, node: int) -> dict[str, Any]:
    """The first node's, with the facts that are others on this one."""
    facts = deepcopy(result.environment)
    for difference in facts["nodes"][node]["differs"]:
        _put(facts, *difference["path"], value=difference["value"])
    return {**facts, "nodes": []}


def _put(facts: Any, key: Any, *rest: str | int, value: Any) -> None:
    if isinstance(facts, list):
        facts += [{} if rest else None] * (key + 1 - len(facts))
    if not rest:
        facts[key] = value
        return
    if isinstance(facts, dict):
        facts.setdefault(key, {})
    _put(facts[key], *rest, value=value)
