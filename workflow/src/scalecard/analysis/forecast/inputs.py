"""The records that a forecast is made from or held against, and what all forecasts of a workload share, fitted once.

What is measured on the largest number of devices is kept apart: no step there is used to fit, nor is anything else if
the same was measured on fewer. On a machine of two devices nothing was, so the parts of a step (all-reduces alone, the
ranks' own times) are those of both devices; the step itself is never among them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scalecard.analysis import by_key, step_records, strategy_choice
from scalecard.analysis.forecast.fitted_terms import NUM, Draws, LocalTime, Ranks, line, middle, spread
from scalecard.analysis.forecast.network import Fitted, Layout, layout_of
from scalecard.records.record import Record, Result
from scalecard.records.strategies import DDP, SINGLE, Collective, Strategy

SCALINGS = ("strong", "weak")
RESNET18 = ("resnet18", "resnet18_quarter")  # of what `ddp` trains, all but LeNet, which computes too little to scale
# Before seeing any: level, slope per doubling, and the power of ranks per core: 1 if nothing else uses the cores.
COMPANY = ((0.0, 0.05), (0.0, 0.008), (0.8, 0.4))


@dataclass(frozen=True, eq=False)
class Workload:
    """One workload's records of `strategies`, and the collectives of the machine; `num_micro` is a pipeline's most.

    `per_node` devices are on a node of which is forecast.
    """

    name: str
    strategies: Result
    collectives: Mapping[Collective, list[Record]]
    num_micro: int
    per_node: int

    @property
    def single(self) -> Record | None:
        """A step of one device with its whole batch."""
        return self.strategies.find("step_time", workload=self.name, strategy=SINGLE.name, devices=1)

    @cached_property
    def precision(self) -> str:
        """In which it was trained."""
        return strategy_choice.precision(self.strategies, self.name)

    def steps(self, strategy: Strategy, scaling: str) -> dict[Layout, Record]:
        """The measured steps, those of the largest number of devices last."""
        found = self.strategies.select("step_time", workload=self.name, strategy=strategy.name, scaling=scaling)
        return dict(sorted((layout_of(record), record) for record in on_whole_nodes(found, self.measured_per_node)))

    def others(self, metric: str, record: Record) -> list[Record]:
        """The parts of a step, such as its ranks' own times: records of another metric whose case has the step's."""
        return self.strategies.select(metric, **step_records.place(record))

    @cached_property
    def measured_per_node(self) -> int:
        """The most devices of one node that anything was timed on."""
        return most_within(self.strategies.select("step_time"))

    @cached_property
    def largest(self) -> Layout:
        """On which nothing is fitted."""
        found = self.strategies.select("step_time", workload=self.name)
        return max((layout_of(record) for record in on_whole_nodes(found, self.measured_per_node)), default=Layout(1))

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

    @cached_property
    def local(self) -> LocalTime:
        """One device by itself, with its whole batch and with smaller ones."""
        found = self.strategies.select("local_time", workload=self.name)
        if self.single and batch_of(self.single) not in map(batch_of, found):
            found.append(self.single)
        return LocalTime.of({batch_of(record): record for record in found})

    @cached_property
    def batch(self) -> int:
        assert self.single is not None
        return batch_of(self.single)

    @cached_property
    def ranks(self) -> dict[str, Ranks]:
        """By scaling, from DDP's ranks without synchronising, on the most devices that may be used."""
        made = {}
        for scaling in SCALINGS:
            found = self.parts(self.steps(DDP, scaling))
            made[scaling] = Ranks.of(self.others("rank_time", found[max(found)]) if found else [])
        return made

    @cached_property
    def company(self) -> Draws:
        """Of the logarithm of what a rank takes longer in company: level, slope per doubling, crowding; [NUM, 3]."""
        seen = list[tuple[float, ...]]()
        for scaling in SCALINGS:
            for layout, step in self.parts(self.steps(DDP, scaling)).items():
                for own in self.others("unsynchronised_time", step):
                    alone = self.local.at(batch_of(step) / layout.devices) * self.ranks[scaling].slowest(layout.devices)
                    ratio = own.median / middle(alone)
                    if not np.isnan(ratio):  # no smaller batch was timed alone
                        sigma = float(np.hypot(spread(own), np.std(np.log(alone)))) + 0.002
                        seen.append((*self._company_of(layout.devices), np.log(ratio), sigma))
        table = np.array(seen).reshape(-1, 4)
        return line(table[:, :2], table[:, 2], table[:, 3], COMPANY, "company", self.name)

    def _company_of(self, devices: int) -> tuple[float, float]:
        """(doublings from two devices on, within a node: other nodes are no company; log of CPU ranks per core)."""
        cores = self.strategies.environment["machine"]["cores"] if self.strategies.emulated else devices
        return max(0.0, float(np.log2(min(devices, self.per_node) / 2))), float(np.log(max(1.0, devices / cores)))

    def in_company(self, devices: int) -> Draws:
        """How many times as long a rank takes as the device alone."""
        if devices == 1:
            return np.ones(NUM)
        return np.asarray(np.exp(self.company @ (1.0, *self._company_of(devices))))

    def crowded(self, devices: int) -> Draws:
        """The part of it that is due to more ranks than cores."""
        return np.asarray(np.exp(self.company[:, 2] * self._company_of(devices)[1]))

    @cached_property
    def fits(self) -> dict[Collective, list[dict[int, Fitted]]]:
        """Of each collective those within a node, by devices, and those over nodes, by nodes."""
        return {name: [self._fits(name, over) for over in (False, True)] for name in Collective}

    def _fits(self, name: Collective, over: bool) -> dict[int, Fitted]:
        found = sorted(self.exchanges(name, over_nodes=over), key=layout_of)
        by_layout = by_key((layout_of(record), record) for record in found)
        return {at.nodes if over else at.devices: Fitted.of(own, name.passes) for at, own in by_layout.items()}

    @cached_property
    def volume(self) -> tuple[float, float]:
        """Bytes of all gradients, as they were counted (0: they were not), and how many all-reduces send them.

        Of a step the bytes alone are counted, of the exchange by itself both.
        """
        select, name = self.strategies.select, self.name
        for record in (*select("exchange_time", workload=name), *select("step_time", workload=name)):
            size, calls = (step_records.counted(record, what) for what in ("all-reduced bytes", "all-reduces"))
            if size:
                return size, calls or 1.0
        return 0.0, 1.0


def workloads(results: Mapping[str, Result], devices_per_node: int | None) -> list[Workload]:
    """Of one platform's results by experiment: those of `strategies`, and the textbook's ResNet-18 of `ddp`.

    Of measured nodes, as many devices are on each as they have; else as many as are asked for, or as there are.
    """
    collectives, made = {name: _collectives(name, results) for name in Collective}, dict[str, Workload]()
    for result in (results.get("strategies"), _weak_scaling(results.get("ddp"))):
        timed = result.select("step_time") if result else []
        here = most_within(timed)
        for name in dict.fromkeys(record.text("workload") for record in timed if "workload" in record.case):
            assert result is not None, "it timed something"
            one = Workload(name, result, collectives, int(result.spec.get("micro_batches", 1)), here)
            over = one.largest.nodes > 1
            made.setdefault(name, one if over else replace(one, per_node=max(here, devices_per_node or here)))
    return list(made.values())


def _weak_scaling(ddp: Result | None) -> Result | None:
    """ResNet-18's steps with a whole batch on each device; no smaller ones are timed alone.

    A textbook's exercise asks for 16 GPUs.
    """
    if ddp is None:
        return None
    records = [
        replace(step, case={**step.case, "scaling": "weak"})
        for step in step_records.scaling_of_ddp(ddp)
        if step.case.get("workload") in RESNET18 and step.case.get("scaling") in ("plain", "weak")
    ]
    return replace(ddp, records=records) if records else None


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


def batch_of(record: Record) -> int:
    return record.integer("batch_size")
