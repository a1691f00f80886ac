"""How should a minibatch be divided between unequal devices, and does the slower one help at all?

A GPU and the host's CPU, or CPU workers of unequal speed, train one model by data parallelism. First each device alone
is timed over several shares of the minibatch. From these curves follows the share with which both finish at the same
time. Then this share, its neighbours and the even split are timed beside the faster device alone.

The answer would be wrong if an uneven division computed something else (every share is compared with a plain loop, in
float64 and as it is timed), if a device did less than its share (operations, samples and exchanged bytes are counted,
also those of a worker that does its share three times to be slower), or if the faster device alone had been timed at
another time than what it is compared with (they take turns).
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import median
from typing import Literal

from scalecard import progress
from scalecard.benchmarks.training.one_process import written_by_hand
from scalecard.hardware.devices import CpuDevice, Device
from scalecard.hardware.machine import Machine
from scalecard.hardware.unequal_devices import Pair, open_pairs
from scalecard.measuring.case_variant import Subject, Timing, Variant
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.prepare import guarded
from scalecard.measuring.proof import Change, Precision, Trained, expected
from scalecard.measuring.spec import Common, Positive, Rate, Several, Sweep
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.parallel.uneven_data_parallel import predicted_share, swept
from scalecard.records.axes import Case
from scalecard.records.record import Record
from scalecard.workloads import reference
from scalecard.workloads.workload import HOST, Workload, built_in

CHECK_SHARES = ((13, 0), (0, 13), (9, 4), (1, 12), (6, 4, 0, 3), (5, 1, 4, 3))  # none, one, odd; two and four devices


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    models: Several[Literal["lenet", "resnet18"]]
    batch_size: Positive
    shares: Sweep
    lr: Rate
    check_steps: Positive

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise ValueError(f"batch_size = {self.batch_size}: must be at least 2, to be divided between two devices")
        for share in self.shares:
            if share > self.batch_size:
                raise ValueError(f"shares = {share}: must be at most batch_size = {self.batch_size}")


@dataclass(frozen=True)
class Setting(Precision):
    """Where a step is built: the samples of each device, in which precision."""

    shares: tuple[int, ...]

    def __str__(self) -> str:
        return f"shares of {' and '.join(map(str, self.shares))}"


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Every pair of unequal devices with every model; two further workers take part in proofs only."""
    with open_pairs(machine) as pairs, closing(CpuDevice(0, 1)) as third, closing(CpuDevice(0, 1)) as fourth:
        if not pairs:
            yield Record.skipped({"pairing": "two devices"}, "needs 2 devices, this machine has 1", metric="step_time")
        for pair, model in in_equal_parts([*product(pairs, spec.models)], label=lambda turn: f"{turn[1]}: {turn[0]}"):
            divided = Divided(spec, model, pair, [third, fourth])
            yield from guarded(divided.records(), divided.case, metric="step_time")


class Divided:
    """One model on one pair of devices; proofs also use the others."""

    def __init__(self, spec: Spec, model: str, pair: Pair, others: Sequence[Device]) -> None:
        self.spec, self.model, self.pair = spec, model, pair
        self.devices, self.times = [*pair.devices, *others], (1, pair.slowed, *[1] * len(others))
        whole: Case = {"workload": model, "batch_size": spec.batch_size}
        self.case: Case = {**whole, "pairing": str(pair), "slowed": pair.slowed}
        self.expected = functools.cache(self._expected)
        self.build = partial(self._subject)  # one object: what one builder makes of a setting is proven once

    def records(self) -> Iterator[Record]:
        """Each device alone, the prediction from that, and the shares around it."""
        progress.doing(f"{self.model}: {self.pair}, each alone")
        sizes = sorted({1, *self.spec.shares, self.spec.batch_size})
        places = list(product((0, 1), sizes))
        alone = self._timed([self._alone(device, share) for device, share in places])
        yield from (timing.record("step_time") for timing in alone)
        missing = next((timing for timing in alone if not timing.completion), None)
        if missing:
            reason = missing.left_out or f"nothing to predict from: {missing.variant.name}: {missing.record().why}"
            yield Record.skipped({**self.case, "part": "together"}, reason, metric="step_time")
            return
        curves: tuple[dict[int, float], dict[int, float]] = ({}, {})
        for (device, share), timing in zip(places, alone, strict=True):
            curves[device][share] = median(timing.completion)
        yield from self._together(*curves)

    def _together(self, first: Mapping[int, float], second: Mapping[int, float]) -> Iterator[Record]:
        """The fastest device alone comes first: the others are compared with it."""
        whole = self.spec.batch_size
        share, seconds = predicted_share(whole, first, second)
        case: Case = {**self.case, "part": "predicted"}
        yield Record(case=case, metric="predicted_share", unit="fraction", samples=[[share / whole]])
        yield Record(case=case, metric="predicted_time", unit="s", samples=[[seconds]])
        first_is_faster = first[whole] <= second[whole]
        slower = swept(whole - share if first_is_faster else share, whole)
        shares = [0, *sorted({*slower, whole // 2})]
        firsts = [whole - n for n in shares] if first_is_faster else shares
        progress.doing(f"{self.model}: {self.pair}, {share} of {whole} samples predicted for {self.pair.names[0]}")
        variants = [self._variant(f"{n} and {whole - n}", (n, whole - n), part="together", share=n) for n in firsts]
        yield from (timing.record("step_time") for timing in self._timed(variants))

    def _timed(self, variants: Sequence[Variant]) -> list[Timing]:
        return time_rounds(variants, devices=self.pair.devices, rule=self.spec.measure, energy=True)

    def _alone(self, device: int, share: int) -> Variant:
        shares, name = ((0, share) if device else (share, 0)), self.pair.names[device]
        return self._variant(f"{share} on {name}", shares, part="alone", place=name, share=share)

    def _variant(self, name: str, shares: tuple[int, ...], **axes: str | int) -> Variant:
        proven_at = [Setting(check, exact=True) for check in CHECK_SHARES]
        case: Case = {**self.case, **axes}
        return Variant(name=name, case=case, build=self.build, proven_at=proven_at, timed_at=Setting(shares))

    def _expected(self, at: Setting) -> Trained | Change:
        """By the plain loop on the first device with a share, in these shares: batch norm sees each by itself."""
        device = next(d for d, share in zip(self.devices, at.shares, strict=False) if share).torch
        workload = self._workload(at)
        images, labels = workload.batch(sum(at.shares), device)
        sizes = [len(labels)] if at.exact else [share for share in at.shares if share]
        steps = [reference.split(images, labels, sizes)] * self._steps(at)
        return expected(self.model, partial(workload.trained, steps, device), exact=at.exact)

    def _workload(self, at: Setting) -> Workload:
        return built_in(self.model, seed=self.spec.seed, lr=self.spec.lr, exact=at.exact)

    def _steps(self, at: Setting) -> int:
        return self.spec.check_steps if at.exact else 1

    def _subject(self, at: Setting) -> Subject:
        devices, times = self.devices[: len(at.shares)], self.times[: len(at.shares)]
        workload = self._workload(at)
        batch, wanted = workload.batch(sum(at.shares), HOST), partial(self.expected, at)
        where, steps = f"{self.model}, {at}", self._steps(at)
        return written_by_hand(where, workload, devices, at.shares, batch, wanted, steps=steps, times=times)
