"""Is this number normal? Compares rates with the hardware's limit, and times with those published for this device.

A section whose rates have a limit offers `judge(result)`, which yields these.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scalecard.analysis import formatting, published_figures
from scalecard.analysis.limits import Limit
from scalecard.analysis.platforms import device_name
from scalecard.analysis.published_figures import Entry
from scalecard.records.record import Result

TROUBLE = ("low", "odd one out", "slowed down", "errors")
PUBLISHED = 0.15  # up to this much worse than a published figure of the same device is normal
# For each published unit: 1 if more is worse, -1 if more is better. Other units are not judged.
DIRECTION = {"s": 1, "s/epoch": 1, "ms": 1, "samples/s": -1, "images/s": -1, "GB/s": -1, "TFLOP/s": -1}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A measured value and what to expect of it: 'normal', 'low', 'above the wire' or 'above the limit'.

    Of a part of the machine also 'odd one out', 'slowed down' or 'errors'.
    """

    what: str
    value: str
    expectation: str
    verdict: str
    advice: str = ""

    @property
    def is_trouble(self) -> bool:
        """Whether it is less than it should be."""
        return self.verdict in TROUBLE

    @property
    def text(self) -> str:
        """The judgement as one clause."""
        return f"{self.what}: {self.value}; {self.advice or self.expectation}"


def rated(what: str, rate: float, limit: Limit, unit: str) -> Judgement:
    """A rate compared with its limit, both in `unit`."""
    share = rate / limit.rate
    verdict = "low" if share < limit.least or limit.advice else "normal"
    return Judgement(
        what=what,
        value=f"{formatting.number(rate)} {unit}, {formatting.percent(share)} of {limit.name}",
        expectation=f"{limit.normal} of {formatting.number(limit.rate)} {unit} is normal",
        verdict="above the limit" if limit.is_exceeded_by(rate) and not limit.advice else verdict,
        advice=limit.advice,
    )


def beside_published(result: Result, ours: Mapping[str, float]) -> Iterator[Judgement]:
    """Our values compared with strict published figures of the same device, for metrics measured alike."""
    for entry in published_figures.published(result.experiment):
        value = ours_beside(entry, ours)
        if entry.gpu != device_name(result) or value is None or not entry.value or entry.unit not in DIRECTION:
            continue
        worse = (value / entry.value) ** DIRECTION[entry.unit] - 1
        yield Judgement(
            what=entry.metric.replace("_", " ").capitalize(),
            value=f"{formatting.number(value)} {entry.unit}",
            expectation=f"published for this device: {formatting.number(entry.value)} {entry.unit} ({entry.source})",
            verdict="low" if worse > PUBLISHED else "normal",
        )


def ours_beside(entry: Entry, ours: Mapping[str, float]) -> float | None:
    """Our value of an entry's metric: for its number of GPUs ('metric@2') if the section distinguishes them."""
    return ours.get(f"{entry.metric}@{entry.gpus}", ours.get(entry.metric))
