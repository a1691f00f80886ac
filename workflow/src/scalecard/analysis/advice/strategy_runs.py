"""Where a workload was tried: by each strategy, on each number of devices, at each scaling, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalecard.analysis import ratio_text, step_records
from scalecard.records.record import Reason, Record, Result
from scalecard.records.statistics import Ratio

FITS, TOO_LARGE, UNABLE, LOST = "fits", "does not fit", "cannot be used", "failed"


@dataclass(frozen=True)
class Place:
    """A strategy on a number of devices, and what became of it: `step` has its times, or says why there are none.

    `alone` is one device with the batch that it has by itself; None if that was not timed.
    """

    step: Record
    alone: Record | None

    @property
    def workload(self) -> str:
        """What is trained."""
        return str(self.step.case["workload"])

    @property
    def strategy(self) -> str:
        """How; of a launch that was lost as a whole, nothing more is known."""
        return str(self.step.case.get("strategy") or "any other")

    @property
    def devices(self) -> int:
        """Of all nodes."""
        return self.step.integer("devices", 1)

    @property
    def nodes(self) -> int:
        """That the devices are on."""
        return self.step.integer("nodes", 1)

    @property
    def scaling(self) -> str:
        """'strong': one device's batch for all; 'weak': as many samples for each."""
        return str(self.step.case.get("scaling") or "")

    @property
    def fits(self) -> bool:
        """Whether it was timed."""
        return bool(self.step.samples)

    @property
    def status(self) -> str:
        """In a few words."""
        if self.fits:
            return FITS
        if self.step.status == "skipped":
            return UNABLE
        return TOO_LARGE if self.step.reason is Reason.OUT_OF_MEMORY else LOST

    @property
    def units(self) -> float:
        """Samples or tokens of a step."""
        return float(self.step.case["units"] or 0)

    @property
    def rate(self) -> float:
        """Samples or tokens per second."""
        return self.units / self.step.median

    @property
    def unit(self) -> str:
        """What is counted."""
        return str(self.step.case["unit"])

    @property
    def batch(self) -> float:
        """Samples of a step, of all devices together."""
        return float(self.step.case["batch_size"] or 0)

    @property
    def gain(self) -> Ratio | None:
        """The rate over one device's."""
        if self.alone is None or not self.fits:
            return None
        more = self.units / float(self.alone.case["units"] or 1)
        return ratio_text.scaled(ratio_text.inverse(self.step.over(self.alone)), more)

    @property
    def efficiency(self) -> Ratio | None:
        """The rate over that of as many devices that each work as fast as one alone."""
        return self.gain and ratio_text.scaled(self.gain, 1 / self.devices)

    @property
    def where(self) -> str:
        """'DDP on 8 devices on 2 nodes', or 'one device'."""
        if self.devices == 1:
            return "one device"
        return f"{self.strategy} on {on(self.devices, self.nodes)}"

    def time_over(self, other: "Place") -> Ratio:
        """Time per sample or token, over another's."""
        return ratio_text.scaled(self.step.over(other.step), other.units / self.units)


def on(devices: int, nodes: int = 1) -> str:
    """'8 devices', '1 device' or '8 devices on 2 nodes'."""
    return f"{devices} device{'' if devices == 1 else 's'}" + (f" on {nodes} nodes" if nodes > 1 else "")


def workloads(result: Result) -> list[str]:
    """All that were tried, in the order of config.yaml."""
    return list(dict.fromkeys(str(r.case["workload"]) for r in result.records if "workload" in r.case))


def places(result: Result, workload: str) -> list[Place]:
    """Everything that was tried for a workload."""
    alone = step_records.single(result, workload)
    own = [r for r in result.records if r.metric == "step_time" and r.case.get("workload") == workload]
    return [Place(record, alone) for record in own]


def timed(found: Sequence[Place], scaling: str) -> list[Place]:
    """Those with times, one device among them, of which both scalings are the same."""
    return [place for place in found if place.fits and (place.scaling == scaling or place.devices == 1)]


def fewest(found: Sequence[Place]) -> list[Place]:
    """Those on the smallest number of devices that hold one device's batch; empty if none does."""
    able = timed(found, "strong") or timed(found, "weak")
    least = min((place.devices for place in able), default=0)
    return [place for place in able if place.devices == least]
