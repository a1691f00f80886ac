"""The parts of a step that all forecasts of a workload share, each fitted once."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalecard.analysis.forecast.inputs import Workload, batch_of, layout_of
from scalecard.analysis.forecast.monte_carlo import NUM, Draws, line, middle, spread
from scalecard.analysis.forecast.network import Fitted
from scalecard.analysis.forecast.single_device import LocalTime, Ranks
from scalecard.analysis.step_records import counted
from scalecard.records.strategies import DDP, Collective

SCALINGS = ("strong", "weak")
# Before seeing any: level, slope per doubling, and the power of ranks per core: 1 if nothing else uses the cores.
COMPANY = ((0.0, 0.05), (0.0, 0.008), (0.8, 0.4))


@dataclass(frozen=True, eq=False)
class Parts:
    """Of one workload; `per_node` devices are on a node, and ranks on a CPU share its `cores`."""

    workload: Workload
    per_node: int
    cores: int | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether CPU ranks and workers stand in for devices."""
        return self.cores is not None

    @cached_property
    def local(self) -> LocalTime:
        """One device by itself; ValueError if it was not timed."""
        single, found = self.workload.single, list(self.workload.local)
        sizes = {batch_of(record) for record in found}
        if single is not None and batch_of(single) not in sizes:
            found.append(single)
        return LocalTime.of(found)

    @cached_property
    def batch(self) -> int:
        """What one device is timed with."""
        assert self.workload.single is not None
        return batch_of(self.workload.single)

    @cached_property
    def ranks(self) -> dict[str, Ranks]:
        """By scaling, from DDP's ranks without synchronising, on the most devices that may be used."""
        made = {}
        for scaling in SCALINGS:
            found = self.workload.parts(self.workload.steps(DDP, scaling))
            made[scaling] = Ranks.of(self.workload.others("rank_time", found[max(found)]) if found else [])
        return made

    @cached_property
    def company(self) -> Draws:
        """Of the logarithm of what a rank takes longer in company: level, slope per doubling, crowding; [NUM, 3]."""
        seen = [one for scaling in SCALINGS for one in self._seen_in_company(scaling)]
        devices, ratios, sigma = np.array(seen).reshape(-1, 3).T
        x = np.array([self._company_of(int(count)) for count in devices]).reshape(-1, 2)
        return line(x, np.log(ratios), sigma, COMPANY, "company", self.workload.name)

    def _seen_in_company(self, scaling: str) -> list[tuple[int, float, float]]:
        """(devices, ratio, its relative error) of the steps that may be used."""
        found = list[tuple[int, float, float]]()
        for layout, step in self.workload.parts(self.workload.steps(DDP, scaling)).items():
            for own in self.workload.others("unsynchronised_time", step):
                alone = self.local.at(batch_of(step) / layout.devices) * self.ranks[scaling].slowest(layout.devices)
                ratio = own.median / middle(alone)
                if not np.isnan(ratio):  # no smaller batch was timed alone
                    sigma = float(np.hypot(spread(own), np.std(np.log(alone)))) + 0.002
                    found.append((layout.devices, ratio, sigma))
        return found

    def _company_of(self, devices: int) -> tuple[float, float]:
        """(doublings from two devices on, within a node: other nodes are no company; log of ranks per core)."""
        crowd = max(1.0, devices / self.cores) if self.cores else 1.0
        return max(0.0, float(np.log2(min(devices, self.per_node) / 2))), float(np.log(crowd))

    def in_company(self, devices: int) -> Draws:
        """How many times as long a rank takes as the device alone."""
        if devices == 1:
            return np.ones(NUM)
        return np.asarray(np.exp(self.company @ (1.0, *self._company_of(devices))))

    def crowded(self, devices: int) -> Draws:
        """The part of it that is due to more ranks than cores."""
        return np.asarray(np.exp(self.company[:, 2] * self._company_of(devices)[1]))

    @cached_property
    def fits(self) -> Mapping[Collective, Mapping[bool, Mapping[int, Fitted]]]:
        """By collective and whether over nodes: by the number of devices, or of nodes."""
        return {name: {over: self._fits(name, over) for over in (False, True)} for name in Collective}

    def _fits(self, name: Collective, over: bool) -> dict[int, Fitted]:
        records = self.workload.exchanges(name, over_nodes=over)
        places = sorted({layout_of(record) for record in records})
        made = {at: Fitted.of([r for r in records if layout_of(r) == at], name.passes) for at in places}
        return {at.nodes if over else at.devices: fit for at, fit in made.items()}

    @cached_property
    def volume(self) -> tuple[float, float]:
        """Bytes of all gradients, as they were counted (0: they were not), and how many all-reduces send them.

        Of a step the bytes alone are counted, of the exchange by itself both.
        """
        select, name = self.workload.strategies.select, self.workload.name
        for record in (*select("exchange_time", workload=name), *select("step_time", workload=name)):
            size, calls = counted(record, "all-reduced bytes"), counted(record, "all-reduces")
            if size:
                return size, calls or 1.0
        return 0.0, 1.0
