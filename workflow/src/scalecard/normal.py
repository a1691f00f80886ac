"""Is this number normal? Rates beside the hardware's limit, and times beside those published for this device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scalecard import limits, reference, sections, units
from scalecard.limits import Limit
from scalecard.reference import Entry
from scalecard.schema import Record, Result
from scalecard.sections import style

BEYOND = 1.05  # shares above it cannot be: the limit is not what was measured, or the vendor's figure is wrong
PUBLISHED = 0.15  # how much worse than a published figure of the same device is normal
# Of published units: 1 where more is worse, -1 where more is better. Others are not judged.
DIRECTION = {"s": 1, "s/epoch": 1, "ms": 1, "samples/s": -1, "images/s": -1, "GB/s": -1, "TFLOP/s": -1}
LARGE = 2048  # rows of a matrix product from which launching no longer matters


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A measured value beside what was to be expected: 'normal', 'low', 'above the wire' or 'above the limit'."""

    what: str
    value: str
    expectation: str
    verdict: str
    advice: str = ""

    @property
    def text(self) -> str:
        return f"{self.what}: {self.value}; {self.advice or self.expectation}"


def judge(result: Result) -> list[Judgement]:
    """Every case of this experiment that has a limit or a published figure of the same device."""
    own = JUDGES.get(result.experiment)
    return [*(own(result) if own and not result.emulated else []), *_published(result)]


def _rated(what: str, rate: float, limit: Limit, unit: str) -> Judgement:
    share = rate / limit.rate
    verdict = "low" if share < limit.least or limit.advice else "normal"
    return Judgement(
        what=what,
        value=f"{rate:.3g} {unit}, {units.percent(share)} of {limit.name}",
        expectation=f"{units.percent(limit.least)} to 100 % of {limit.rate:.4g} {unit} is normal",
        verdict="above the limit" if share > BEYOND and not limit.advice else verdict,
        advice=limit.advice,
    )


def _copies(result: Result) -> Iterator[Judgement]:
    """The best copy in each direction: over PCIe, over NVLink, or within a device's memory."""
    records = result.select("time", part="matrix")
    for direction in dict.fromkeys(str(r.case["direction"]) for r in records):
        mine = [r for r in records if r.case["direction"] == direction]
        # Small copies within a device stay in its cache: only the largest size is the memory's.
        best = max(mine, key=_bytes if direction.startswith("within") else limits.copy_rate)
        limit = limits.of_copy(result, best)
        if limit:
            size, memory = units.count_bytes(best.case["bytes"]), best.case["memory"]
            what = f"{direction.capitalize()}, {memory} memory, {size}, effective rate one way"
            yield _rated(what, limits.copy_rate(best), limit, "GB/s")


def _bytes(record: Record) -> float:
    return float(record.case["bytes"] or 0)


def _all_reduces(result: Result) -> Iterator[Judgement]:
    """The library's best all-reduce on each number of devices."""
    records = result.select("time", algorithm="torch.distributed", nodes=None)
    for count in dict.fromkeys(r.case["devices"] for r in records):
        best = max((r for r in records if r.case["devices"] == count), key=limits.bus_bandwidth)
        limit, rate = limits.of_all_reduce(result, best), limits.bus_bandwidth(best)
        what = f"All-reduce on {count} devices, bus bandwidth"
        if limit and limit.is_nvlink and rate > limit.rate:
            yield _above(what, rate, limit)
        elif limit:
            yield _rated(what, rate, limit, "GB/s")


def _above(what: str, rate: float, limit: Limit) -> Judgement:
    return Judgement(
        what=what,
        value=f"{rate:.3g} GB/s, {units.percent(rate / limit.rate)} of {limit.name}",
        expectation="above the wire is right where the switch itself adds (NVLink SHARP): fewer bytes travel than the"
        " formula of bus bandwidth counts",
        verdict="above the wire",
    )


def _products(result: Result) -> Iterator[Judgement]:
    """The largest product of each dtype against the chip's dense peak."""
    records = result.select("time", mode="single")
    for dtype in dict.fromkeys(str(r.case["dtype"]) for r in records):
        largest = max((r for r in records if r.case["dtype"] == dtype), key=_size)
        limit = limits.of_products(result, dtype)
        if limit and _size(largest) >= LARGE:
            what = f"{dtype.capitalize()} products of {_size(largest):.0f} rows"
            yield _rated(what, limits.product_rate(largest), limit, "TFLOP/s")


def _size(record: Record) -> float:
    return float(record.case["size"] or 0)


def ours_beside(entry: Entry, ours: dict[str, float]) -> float | None:
    """Our value of an entry's metric: for its number of GPUs ('metric@2') where the section tells them apart."""
    return ours.get(f"{entry.metric}@{entry.gpus}", ours.get(entry.metric))


def _published(result: Result) -> Iterator[Judgement]:
    """Strict published figures of the same device, for the metrics that this experiment measured alike."""
    module, device = sections.load(result.experiment), style.device_name(result)
    ours = module.published(result) if hasattr(module, "published") else {}
    for entry in reference.published(result.experiment):
        value = ours_beside(entry, ours)
        if entry.gpu != device or value is None or not entry.value or entry.unit not in DIRECTION:
            continue
        worse = (value / entry.value) ** DIRECTION[entry.unit] - 1
        yield Judgement(
            what=entry.metric.replace("_", " ").capitalize(),
            value=f"{value:.4g} {entry.unit}",
            expectation=f"published for this device: {entry.value:.4g} {entry.unit} ({entry.source})",
            verdict="low" if worse > PUBLISHED else "normal",
        )


JUDGES: dict[str, Callable[[Result], Iterator[Judgement]]] = {
    "copy_cost": _copies,
    "allreduce": _all_reduces,
    "async_timing": _products,
}
