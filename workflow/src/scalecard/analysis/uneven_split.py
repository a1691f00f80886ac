"""What `heterogeneous` measured: how a minibatch is divided between two unequal devices."""

from dataclasses import dataclass, replace

from scalecard.analysis import by_key
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio


@dataclass(frozen=True)
class Division:
    """A model on a pair of devices: the devices' names, each one's times alone, and both together by the first's share.

    `alone` is the faster device in the rounds of those together; `predicted` is a share of the minibatch, and
    `predicted_time` its seconds.
    """

    names: tuple[str, str]
    batch_size: int
    slowed: int
    curves: list[list[Record]]
    together: list[Record]
    alone: Record
    emulated: bool
    predicted: float
    predicted_time: float

    @property
    def faster(self) -> int:
        """Which of the devices `alone` is."""
        return 0 if share_of(self.alone) == self.batch_size else 1

    @property
    def nearest(self) -> Record:
        """The one together that is nearest to the prediction, or the faster device alone if the other gets nothing."""
        goal = self.predicted * self.batch_size
        return min([self.alone, *self.together], key=lambda record: abs(share_of(record) - goal))

    def shares(self, record: Record) -> str:
        """'54 samples on GPU 0 and 10 on CPU'."""
        first = share_of(record)
        return f"{first} samples on {self.names[0]} and {self.batch_size - first} on {self.names[1]}"


def share_of(record: Record) -> int:
    """The samples on the first device or, of a device alone, its own."""
    return record.integer("share")


def divisions(result: Result) -> list[Division]:
    """Every model on every pair of devices of which anything together was measured."""
    found = []
    for predicted in result.select("predicted_share"):
        case: Case = {key: predicted.case[key] for key in ("workload", "pairing", "batch_size", "slowed")}
        alone = by_key((record.text("place"), record) for record in result.select("step_time", part="alone", **case))
        timed, whole = result.select("step_time", part="together", **case), predicted.integer("batch_size")
        seconds = result.find("predicted_time", **predicted.case)
        base = next((record for record in timed if record.case["share"] in (0, whole)), None)
        together = sorted((record for record in timed if record is not base), key=share_of)
        if len(alone) > 1 and seconds and base and together:
            first, second = alone
            one = Division(
                names=(first, second),
                batch_size=whole,
                slowed=predicted.integer("slowed"),
                curves=[sorted(curve, key=share_of) for curve in alone.values()],
                together=together,
                alone=base,
                emulated=result.emulated,
                predicted=predicted.median,
                predicted_time=seconds.median,
            )
            found.append(one)
    return found


def over_in_rounds(new: Record, old: Record) -> Ratio:
    """new / old by the rounds that both were timed in, if there are any: processes may predict different shares."""
    both = {entry.rounds_id for entry in new.telemetry} & {entry.rounds_id for entry in old.telemetry}
    return _of_rounds(new, both).over(_of_rounds(old, both)) if both else new.over(old)


def _of_rounds(record: Record, chosen: set[str]) -> Record:
    pairs = zip(record.samples, record.telemetry, strict=True)
    kept = [(samples, entry) for samples, entry in pairs if entry.rounds_id in chosen]
    return replace(record, samples=[samples for samples, _ in kept], telemetry=[entry for _, entry in kept])
