"""The records that a forecast is made from or held against.

What is measured on the largest number of devices is kept apart: no step there is used to fit, nor is anything else if
the same was measured on fewer. On a machine of two devices nothing was, so the parts of a step (all-reduces alone, the
ranks' own times) are those of both devices; the step itself is never among them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scalecard.analysis import step_records, strategy_choice
from scalecard.records.record import Record, Result
from scalecard.records.strategies import SINGLE, Collective, Strategy


@dataclass(frozen=True, order=True)
class Layout:
    """So many devices in all, on so many nodes."""

    devices: int
    nodes: int = 1


@dataclass(frozen=True, eq=False)
class Workload:
    """One workload's records of `strategies`, and the collectives of the machine; `num_micro` is a pipeline's most."""

    name: str
    strategies: Result
    collectives: Mapping[Collective, list[Record]]
    num_micro: int

    @property
    def single(self) -> Record | None:
        """A step of one device with its whole batch."""
        return self.strategies.find("step_time", workload=self.name, strategy=SINGLE.name, devices=1)

    @cached_property
    def precision(self) -> str:
        """In which it was trained."""
        return strategy_choice.precision(self.strategies, self.name)

    @property
    def local(self) -> list[Record]:
        """Steps of one device with smaller batches, the smallest first."""
        return sorted(self.strategies.select("local_time", workload=self.name), key=batch_of)

    def steps(self, strategy: Strategy, scaling: str) -> dict[Layout, Record]:
        """The measured steps, those of the largest number of devices last."""
        found = self.strategies.select("step_time", workload=self.name, strategy=strategy.name, scaling=scaling)
        return dict(sorted((layout_of(record), record) for record in on_whole_nodes(found, self.per_node)))

    def others(self, metric: str, record: Record) -> list[Record]:
        """The parts of a step, such as its ranks' own times: records of another metric whose case has the step's."""
        return self.strategies.select(metric, **step_records.place(record))

    @cached_property
    def per_node(self) -> int:
        """The most devices of one node that anything was timed on."""
        return most_within(self.strategies.select("step_time"))

    @cached_property
    def largest(self) -> Layout:
        """On which nothing is fitted."""
        found = self.strategies.select("step_time", workload=self.name)
        return max((layout_of(record) for record in on_whole_nodes(found, self.per_node)), default=Layout(1))

    def fitted(self, found: Mapping[Layout, Record]) -> dict[Layout, Record]:
        """Of records by layout, those that a step may be fitted to."""
        return {layout: record for layout, record in found.items() if layout.devices < self.largest.devices}

    def parts(self, found: Mapping[Layout, Record]) -> dict[Layout, Record]:
        """Those that parts may be fitted to: the same, or all if there are none."""
        return self.fitted(found) or dict(found)

    def exchanges(self, collective: Collective, *, over_nodes: bool) -> list[Record]:
        """Times of a collective within a node, or over nodes with all their devices; on fewer devices if possible."""
        found = [r for r in self.collectives[collective] if over_nodes == (layout_of(r).nodes > 1)]
        fewer = [r for r in found if layout_of(r).devices < self.largest.devices]
        return fewer or found


def workloads(results: Mapping[str, Result]) -> list[Workload]:
    """Of one platform's results by experiment; empty without `strategies`."""
    strategies = results.get("strategies")
    if strategies is None:
        return []
    timed = [r.text("workload") for r in strategies.select("step_time") if "workload" in r.case]
    collectives = {name: _collectives(name, results) for name in Collective}
    num_micro = int(strategies.spec.get("micro_batches", 1))
    return [Workload(name, strategies, collectives, num_micro) for name in dict.fromkeys(timed)]


def _collectives(name: Collective, results: Mapping[str, Result]) -> list[Record]:
    found = list[Record]()
    if name is Collective.ALL_REDUCE and (result := results.get("allreduce")):
        found += result.select("time", algorithm="torch.distributed")
    if result := results.get("health"):
        found += result.select("time", part="collective", collective=name)
    return on_whole_nodes(found, most_within(found))


def most_within(found: Sequence[Record]) -> int:
    """The most devices within one node."""
    return max((layout.devices for layout in map(layout_of, found) if layout.nodes == 1), default=1)


def on_whole_nodes(found: Sequence[Record], each: int) -> list[Record]:
    """Those on several devices, over nodes only with all `each` devices of one: one of each is no step towards more."""
    return [
        record
        for record in found
        if (layout := layout_of(record)).devices > 1 and layout.nodes in (1, layout.devices / each)
    ]


def layout_of(record: Record) -> Layout:
    return Layout(record.integer("devices"), record.integer("nodes", 1))


def batch_of(record: Record) -> int:
    return record.integer("batch_size")
