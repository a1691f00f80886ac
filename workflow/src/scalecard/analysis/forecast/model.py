"""A step on any number of devices, as a sum of terms: what the model is, fitted to the parts that were measured.

    data parallel   ideal + smaller batch + company + slowest rank + exchange
    a pipeline      ideal + smaller batch + bubble + unequal stages + hand-over

ideal           one device's time for its batch, divided by the devices (strong scaling) or as it is (weak)
smaller batch   what one device, timed alone, takes longer for so few samples
company         what a rank takes longer because others compute too: power, shared memory, ranks' own work
slowest rank    the expected largest of n ranks' times over that of the device that was timed alone
exchange        what a step waits for its collectives (fitted_terms.py, network.py)
bubble          (p - 1)/m of the time that a stage computes, with p stages and m micro-batches
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scalecard.analysis.forecast.fitted_terms import (
    NUM,
    Draws,
    Overlap,
    Prior,
    Seen,
    generator,
    line,
    log_normal,
    middle,
    of_ratio,
    overlap,
    spread,
)
from scalecard.analysis.forecast.inputs import SCALINGS, Workload
from scalecard.analysis.forecast.network import Exchange, Layout, Network
from scalecard.records.record import Record
from scalecard.records.strategies import OUR_GPIPE, Among, Collective, Communication, Strategy

Terms = dict[str, Draws]
PER_DOUBLING = 0.01  # what any such model is not told, of a step, for each doubling beyond what it was fitted to
DAMPED = (0.2, 1.8)  # of its slope that a trend keeps beyond what was measured
UNEVEN = 0.02  # what a trend of stages misses for each further doubling, because blocks cannot be divided
EXTRA, IF_SHARDED = 0.01, 0.05  # of computing, that exchanging adds, before seeing any


@dataclass(frozen=True, eq=False)
class Model(ABC):
    """One workload, strategy and scaling."""

    workload: Workload
    network: Network
    strategy: Strategy
    scaling: str

    @cached_property
    def steps(self) -> dict[Layout, Record]:
        """What was measured, also on the largest number of devices."""
        return self.workload.steps(self.strategy, self.scaling)

    @cached_property
    def known(self) -> dict[Layout, Record]:
        return self.workload.fitted(self.steps)

    @property
    def most(self) -> int:
        """The largest number of devices that the fit has seen."""
        return max((layout.devices for layout in self.known), default=1)

    def whole(self, devices: int) -> int:
        """The batch of all devices together."""
        return self.workload.batch * (devices if self.scaling == "weak" else 1)

    def ideal(self, devices: int) -> Draws:
        """One device's time, divided if the batch is."""
        return self.workload.local.at(self.workload.batch) / (devices if self.scaling == "strong" else 1)

    def layout(self, devices: int) -> Layout:
        """On as few nodes as hold them."""
        return Layout(devices, -(-devices // self.workload.per_node))

    def seconds(self, devices: int) -> Draws:
        """Draws of a step."""
        total: Draws = np.sum(list(self.terms(devices).values()), axis=0)
        return total * self.missed(devices)

    def missed(self, devices: int) -> Draws:
        """The step over the sum of its terms, for what no term knows of more devices."""
        doublings = max(0.0, float(np.log2(devices / self.most)))
        return log_normal(1.0, PER_DOUBLING * doublings, "missed", self.strategy.name, self.scaling)

    @abstractmethod
    def in_precision(self, precision: str, ratio: Draws, devices: int) -> Draws:
        """Draws of a step in another precision, in which one device alone takes `ratio` times as long.

        What was fitted to this one's steps, such as how much of the exchange is hidden, is taken to hold there as well.
        """

    @abstractmethod
    def terms(self, devices: int) -> Terms:
        """Draws of every term in seconds; they add up to the step."""

    @property
    def limit(self) -> int | None:
        """The largest number of devices that can take part, if it is known: how many blocks a model has is not."""
        return None


class DataParallel(Model):
    """DDP, FSDP and HSDP: every rank computes its share, and gradients or parameters are exchanged."""

    @property
    def limit(self) -> int | None:
        """With strong scaling a sample for each."""
        return self.workload.batch if self.scaling == "strong" else None

    @cached_property
    def exchanges(self) -> dict[Collective, Exchange]:
        per_node, fits = self.workload.per_node, self.workload.fits.items()
        return {name: Exchange(name.passes, within, over, per_node, self.network) for name, (within, over) in fits}

    def exchanged(self, layout: Layout, precision: str | None = None) -> Draws:
        """Seconds of all collectives of a step, by themselves; in the workload's own precision if none is named."""
        named = precision or self.workload.precision
        each = [one.times * self._alone(one, layout, named) for one in self.strategy.collectives]
        return np.asarray(np.sum(each, axis=0))

    def _alone(self, one: Communication, layout: Layout, precision: str) -> Draws:
        """One of these. If halves of an all-reduce were not measured, each takes half of its time."""
        size, calls = self.workload.volume
        size *= one.bytes_ratio(precision)
        whole, exchange = self.exchanges[Collective.ALL_REDUCE], self.exchanges[one.collective]
        if one.among is Among.REPLICAS:  # which are nodes
            return exchange.between_nodes(size, layout.nodes)
        if one.among is Among.REPLICA:
            layout = Layout(min(layout.devices, self.workload.per_node))
        if exchange is whole:
            return calls * whole.seconds(size / calls, layout)
        return exchange.seconds(size, layout) if exchange.known else whole.seconds(size, layout) / 2

    def computes(self, devices: int) -> Draws:
        """The slowest rank, without exchanging."""
        each = self.workload.local.at(self.whole(devices) / devices)
        return each * self.workload.in_company(devices) * self.workload.ranks[self.scaling].slowest(devices)

    def in_precision(self, precision: str, ratio: Draws, devices: int) -> Draws:
        """Computing at the other pace, and the other precision's bytes."""
        computes = ratio * self.computes(devices)
        waits = self.overlap.waits(computes, self.exchanged(self.layout(devices), precision))
        return (computes + waits) * self.missed(devices)

    @cached_property
    def overlap(self) -> Overlap:
        """From the steps that may be used, of both scalings: strong scaling has little to hide behind, weak much."""
        seen = [one for scaling in SCALINGS for one in replace(self, scaling=scaling)._seen()]
        sharded = self.strategy.times(Collective.ALL_GATHER)
        name, extra = f"{self.workload.name}, {self.strategy.name}", IF_SHARDED if sharded else EXTRA
        return overlap(seen, extra=extra, name=name, on_cpu=self.workload.strategies.emulated)

    def _seen(self) -> list[Seen]:
        """DDP beside the same ranks in the same rounds without exchanging; others beside what ranks compute."""
        found = list[Seen]()
        for layout, step in self.known.items():
            computes, own = middle(self.computes(layout.devices)), self.workload.others("unsynchronised_time", step)
            if np.isnan(computes):
                continue
            if own:
                ratio = of_ratio(step.over(own[0]), "overlap", sorted(step.case.items(), key=str))
                whole, sigma = computes * middle(ratio), float(np.std(np.log(ratio)))
            else:
                whole, sigma = step.median, float(np.hypot(spread(step), np.std(np.log(self.computes(layout.devices)))))
            found.append(Seen(whole, computes, middle(self.exchanged(layout)), sigma))
        return found

    def terms(self, devices: int) -> Terms:
        ideal, alone = self.ideal(devices), self.workload.local.at(self.whole(devices) / devices)
        in_company, computes = alone * self.workload.in_company(devices), self.computes(devices)
        waits = self.overlap.waits(computes, self.exchanged(self.layout(devices))) if devices > 1 else np.zeros(NUM)
        return {
            "ideal": ideal,
            "smaller batch": alone - ideal,
            "company": in_company - alone,
            "slowest rank": computes - in_company,
            "exchange": waits,
        }


class Pipeline(Model):
    """Stages on devices, and micro-batches that follow one another."""

    UNEQUAL = ((0.1, 0.3), (0.05, 0.08))  # of the logarithm: level on two stages, slope per doubling
    HANDED = ((0.0, 0.2), (0.0, 0.05))
    HANDED_ON_CPU = ((0.25, 0.25), (0.0, 0.05))  # stages share the host's cores and memory

    def micro_batches(self, devices: int) -> int:
        """Equal ones, at most as many as config.yaml says; model parallelism has one."""
        if self.strategy.schedule is None:
            return 1
        whole = self.whole(devices)
        return max(count for count in range(1, min(self.workload.num_micro, whole) + 1) if whole % count == 0)

    def computes(self, devices: int) -> Draws:
        """What each of equal stages computes in a step."""
        micros = self.micro_batches(devices)
        return micros * self.workload.local.at(self.whole(devices) / micros) / devices * self.workload.crowded(devices)

    def played(self, devices: int) -> Draws:
        """A step of equal stages that hand over in no time."""
        micros = self.micro_batches(devices)
        return self.computes(devices) * (micros + devices - 1) / micros

    def in_precision(self, precision: str, ratio: Draws, devices: int) -> Draws:
        """All terms are in proportion to computing, handing over too."""
        return ratio * self.seconds(devices)

    def _line(self, found: list[tuple[int, float, float]], prior: Prior) -> Draws:
        found = [one for one in found if not np.isnan(one[1])]
        x = np.array([np.log2(devices / 2) for devices, _, _ in found])
        y = np.log([value for _, value, _ in found])
        sigma = np.array([sigma + 0.005 for _, _, sigma in found])
        return line(x, y, sigma, prior, self.workload.name, self.strategy.name, self.scaling)

    def stretched(self, slowest: Draws, devices: int) -> Draws:
        """A step over one of equal stages, if the slowest stage takes `slowest` times the mean.

        Each micro-batch passes all stages once, and the slowest one computes the others meanwhile:
        (sum + (m - 1) largest)/m against (p + m - 1)/m times the mean. Source: GPipe (Huang et al., 2019), section 2.3.
        """
        micros = self.micro_batches(devices)
        return np.asarray((devices + (micros - 1) * slowest) / (devices + micros - 1))

    @cached_property
    def unequal(self) -> Draws:
        """(level, slope) of the slowest stage over the mean, as played schedules of the stages as they are tell it.

        GPipe's are asked where there are any: in 1F1B a slow stage also fills the time in which others begin.
        """
        gpipe = self.workload.parts(self.workload.steps(OUR_GPIPE, self.scaling))
        found = list[tuple[int, float, float]]()
        for at, step in (gpipe or self.workload.parts(self.steps)).items():
            micros = self.micro_batches(at.devices)
            for record in self.workload.others("played_time", step) if micros > 1 else ():
                stretched = record.median / middle(self.played(at.devices))
                slowest = (stretched * (at.devices + micros - 1) - at.devices) / (micros - 1)
                found.append((at.devices, max(0.1, slowest), spread(record)))
        return self._line(found, self.UNEQUAL)

    def staged(self, devices: int) -> Draws:
        """A step of the stages as they are, that hand over in no time."""
        return self.played(devices) * self.stretched(self._at(self.unequal, devices), devices)

    @cached_property
    def handed(self) -> Draws:
        """(level, slope) of measured steps over what the stages as they are would take."""
        steps = self.known.items()
        seen = [(at.devices, r.median / middle(self.staged(at.devices)), spread(r)) for at, r in steps]
        return self._line(seen, self.HANDED_ON_CPU if self.workload.strategies.emulated else self.HANDED)

    def _at(self, trend: Draws, devices: int) -> Draws:
        """Beyond the devices that it was fitted to, a trend goes on for a part of its slope that nobody knows.

        Source: Gardner and McKenzie, Forecasting trends in time series (1985), damped trends.
        """
        last = max(2, self.most)
        within, beyond = np.log2(min(devices, last) / 2), np.log2(max(1, devices / last))
        damping = generator("damping", self.strategy.name, self.scaling).uniform(*DAMPED, NUM)
        missed = UNEVEN * beyond * generator("blocks", devices).standard_normal(NUM)
        return np.asarray(np.exp(trend[:, 0] + trend[:, 1] * (within + damping * beyond) + missed))

    def terms(self, devices: int) -> Terms:
        ideal = self.ideal(devices)
        if devices == 1:
            return {"ideal": ideal}
        computes, played, stages = self.computes(devices), self.played(devices), self.staged(devices)
        return {
            "ideal": ideal,
            "smaller batch": computes - ideal,
            "bubble": played - computes,
            "unequal stages": stages - played,
            "hand-over": stages * (self._at(self.handed, devices) - 1),
        }


PRESETS = (100.0, 200.0, 400.0)  # Gbit/s of a node's network: 100 and 200 Gbit/s Ethernet or EDR and HDR, and NDR


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keys of `forecast:`; a node's network each way, all its adapters together. The values are config.yaml's.

    `devices_per_node` None: as many as were measured on one. `knee` is the efficiency from which on more devices are
    not worth it, `samples` how many are trained on where time and energy are told.
    """

    devices_per_node: int | None = None
    gbit_per_s: float = 200.0
    latency_us: float = 5.0
    knee: float = 0.8
    samples: int = 10_000_000

    @property
    def network(self) -> Network:
        return Network(float(self.gbit_per_s), float(self.latency_us))
