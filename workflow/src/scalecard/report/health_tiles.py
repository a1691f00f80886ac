"""One tile for each part of a machine: its verdict, and the number that stands for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scalecard.analysis import formatting
from scalecard.analysis.health import measured_rates, rate_text
from scalecard.analysis.health.alerts import verdicts
from scalecard.analysis.health.measured_rates import Rate
from scalecard.analysis.health.verdict import FINE, SYMBOLS, WORDS, Kind, Part, Verdict
from scalecard.records.record import Case, Result

TO_DEVICE: Case = {"part": "host link", "direction": "to device", "at_once": False}
ALL_REDUCE: Case = {"part": "collective", "collective": "all_reduce"}
# What stands for a part: of these cases the first that was measured.
STANDS_FOR: dict[Part, tuple[Case, ...]] = {
    Part.COMPUTE: tuple({"part": "compute", "dtype": dtype, "at_once": False} for dtype in ("bfloat16", "float32")),
    Part.MEMORY: tuple({"part": "memory", "access": access, "at_once": False} for access in ("copy", "read")),
    Part.HOST_LINKS: ({**TO_DEVICE, "memory": "pinned"}, {**TO_DEVICE, "memory": "pageable"}),
    Part.GPU_LINKS: ({"part": "device link", "at_once": False},),
    Part.COLLECTIVES: (ALL_REDUCE,),
    Part.NETWORK: (ALL_REDUCE, {"part": "node pair"}),
    Part.HOST: ({"part": "storage"},),
}


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A part of the machine in a few words; `share` is that of the hardware's limit, as '65 %', or ''."""

    part: Part
    verdict: str
    symbol: str
    number: str
    what: str
    share: str
    detail: str

    @property
    def trouble(self) -> bool:
        """Whether something is wrong with it."""
        return self.verdict not in FINE


def tiles(result: Result) -> list[Tile]:
    """One for every part of which anything is known."""
    every, rates = verdicts(result), measured_rates.rates(result)
    known = [(part, [verdict for verdict in every if verdict.part == part]) for part in Part]
    return [_tile(part, own, rates) for part, own in known if own]


def _tile(part: Part, own: Sequence[Verdict], rates: Sequence[Rate]) -> Tile:
    # What could not be judged does not make a tile of it, as long as something could.
    judged = [verdict for verdict in own if verdict.verdict != "not judged"]
    word = min((verdict.verdict for verdict in judged), key=WORDS.index, default="not judged")
    number, what, share = _number(_standing(part, rates))
    fine = f"{sum(verdict.fine for verdict in judged)} of {len(judged)} normal" if judged else "nothing to compare with"
    return Tile(part=part, verdict=word, symbol=SYMBOLS[word], number=number, what=what, share=share, detail=fine)


def _standing(part: Part, rates: Sequence[Rate]) -> list[Rate]:
    """The rates of what stands for a part: of every device or pair, at the largest size and number of devices."""
    able = [rate for rate in rates if rate.part is part and rate.kind is not Kind.LATENCY]
    per_case = ([rate for rate in able if rate.record.matches(**case)] for case in STANDS_FOR[part])
    found = next((own for own in per_case if own), [])
    sizes = [(rate.record.case.get("devices") or 0, rate.record.case.get("bytes") or 0) for rate in found]
    return [rate for rate, size in zip(found, sizes, strict=True) if size == max(sizes)]


def _number(rates: Sequence[Rate]) -> tuple[str, str, str]:
    """The median of these rates, what it is, and its share of the limit."""
    if not rates:
        return "", "", ""
    first, middle = rates[0], median(rate.value for rate in rates)
    limits = {rate.limit and rate.limit.rate for rate in rates}
    limit = limits.pop() if len(limits) == 1 else None
    return first.in_words(middle), rate_text.in_tile(first), formatting.percent(middle / limit) if limit else ""
