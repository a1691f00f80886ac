"""Times the strategies of one number of devices in the same rounds: found fit, proven, counted, timed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from scalecard import progress
from scalecard.distributed.context import RankContext
from scalecard.hardware.devices import Device
from scalecard.measuring import out_of_memory
from scalecard.measuring.bench import Bench, Synchronised
from scalecard.measuring.proof import local
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.rule import Rule
from scalecard.measuring.timing import Timing
from scalecard.measuring.variant import Subject, Variant
from scalecard.records.record import Case, Record
from scalecard.strategies.examine import examined
from scalecard.strategies.load import Load
from scalecard.strategies.plainly import Plainly, Setting
from scalecard.strategies.strategy import CannotBe, Strategy

ACCEPTED, UNABLE, OUT_OF_MEMORY = 0.0, 1.0, 2.0
CHECKED_EACH = 2  # samples of every device on which equality is proven


@dataclass(frozen=True)
class Group:
    """The ranks and devices that measure together, and how: `num_micro` is how many micro-batches pipelines take."""

    ctx: RankContext
    devices: Sequence[Synchronised]
    device: torch.device
    rule: Rule
    check_steps: int
    num_micro: int

    @property
    def bench(self) -> Bench:
        """What waits for all of the devices."""
        return Bench(self.devices, self.ctx)

    def records(
        self, load: Load, num_devices: int, scalings: Iterable[str], strategies: Iterable[Strategy], case: Case
    ) -> list[Record]:
        """Step times of every strategy, or why there is none."""
        load = examined(load, self.device, self.check_steps, self.ctx)
        plainly, records, variants = Plainly(self.device, self.check_steps), list[Record](), list[Variant]()
        for strategy in strategies:
            for scaling in scalings:
                at = self._setting(load, num_devices, scaling, strategy)
                own: Case = {"workload": load.name, "strategy": strategy.name, **case, "scaling": scaling}
                own |= {"batch_size": at.load.batch_size, "unit": load.unit, "units": load.units(at.load.batch_size)}
                build = partial(strategy.build, plainly)
                small = self._small(at, strategy)
                if refused := self._refused(strategy, at, own, partial(build, at)):
                    records.append(refused)
                    continue
                name = f"{strategy.name}, {scaling} scaling"
                proven_at = [] if load.inexact else [small]
                variants.append(Variant(name=name, case=own, build=build, proven_at=proven_at, timed_at=at))
        return [*records, *self._timed(load, num_devices, variants)]

    def _setting(self, load: Load, num_devices: int, scaling: str, strategy: Strategy) -> Setting:
        """One device's batch for all, or one for each; pipelines cut it into equal micro-batches."""
        whole = load.batch_size * (num_devices if scaling == "weak" else 1)
        shared = max(1, whole // strategy.replicas)
        num_micro = max(count for count in range(1, min(self.num_micro, shared) + 1) if shared % count == 0)
        return Setting(replace(load, batch_size=whole), num_devices, num_micro if strategy.pipelined else 1)

    def _small(self, at: Setting, strategy: Strategy) -> Setting:
        """What equality is proven on: a few samples of every device, in float64."""
        load = replace(at.load, batch_size=CHECKED_EACH * at.devices, exact=True)
        return Setting(load, at.devices, CHECKED_EACH * at.devices // strategy.replicas if strategy.pipelined else 1)

    def _refused(self, strategy: Strategy, at: Setting, case: Case, build: Callable[[], Subject]) -> Record | None:
        """A record that says why it cannot be used, tried with one step; all ranks take part and agree."""
        progress.detail(f"trying {strategy.name}")
        reason, refuse = "", ACCEPTED
        try:
            _shared_equally(at, case)
            strategy.suits(at)
            build().work()
            self.bench.synchronize()
        except Exception as error:  # whatever a library says of a model that it was not made for
            reason, refuse = _said(error), OUT_OF_MEMORY if out_of_memory.is_out_of_memory(error) else UNABLE
        (worst,) = self.ctx.maximum([refuse])
        if worst == ACCEPTED:
            return None
        make = Record.failed if worst == OUT_OF_MEMORY else Record.skipped
        return make(case, reason or "another rank cannot", metric="step_time")

    def _timed(self, load: Load, num_devices: int, variants: Sequence[Variant]) -> Iterator[Record]:
        if not variants:
            return
        progress.doing(f"{load.name}: {len(variants)} variants on {progress.counted(num_devices, 'device')}")
        timings = time_rounds(variants, devices=self.devices, rule=self.rule, ranks=self.ctx, energy=True)
        for timing in timings:
            yield timing.record("step_time")
        yield from self._memory(load, timings)

    def _memory(self, load: Load, timings: Sequence[Timing]) -> Iterator[Record]:
        """The most bytes that a step of each takes on any device, with its own parameters and nobody else's."""
        if self.device.type == "cpu":
            note = "CPU workers and ranks share the host's memory: there is no peak per device"
            yield Record.skipped({"workload": load.name}, note, metric="peak_memory", unit="B")
            return
        for timing in timings:
            if timing.prepared and not timing.failure:
                peak = max(self._peak(timing.prepared.subject, index) for index in self._indices())
                (largest,) = self.ctx.maximum([float(peak)])
                yield Record(case=timing.variant.case, metric="peak_memory", unit="B", samples=[[largest]])

    def _indices(self) -> list[int]:
        """The GPUs that this process uses."""
        mine = (device.index for device in self.devices if isinstance(device, Device))
        return list(mine) or [self.device.index or 0]

    def _peak(self, subject: Subject, index: int) -> int:
        own = sum(local(tensor).nbytes for tensor in subject.state() if local(tensor).device.index == index)
        torch.cuda.synchronize(index)
        before = torch.cuda.memory_allocated(index)
        torch.cuda.reset_peak_memory_stats(index)
        subject.work()
        self.bench.synchronize()
        return own + torch.cuda.max_memory_allocated(index) - before


def _shared_equally(at: Setting, case: Case) -> None:
    """CannotBe if the devices cannot."""
    if at.load.batch_size % at.devices:
        raise CannotBe(f"{at.devices} devices cannot share {case['batch_size']} samples equally")


def _said(error: Exception) -> str:
    """The first line of an error; our own explain themselves."""
    text = (str(error).splitlines() or [""])[0][:200]
    return text if isinstance(error, CannotBe) else f"{type(error).__name__}: {text}"
