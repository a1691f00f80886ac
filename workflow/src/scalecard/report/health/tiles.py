"""One tile for each part of a machine: its verdict, and the number that stands for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scalecard.records.record import Result
from scalecard.report import units
from scalecard.report.health import measured
from scalecard.report.health.measured import Rate
from scalecard.report.health.verdict import FINE, PARTS, SYMBOLS, WORDS, Verdict
from scalecard.report.health.verdicts import verdicts

# What stands for a part, the first that was measured.
STANDS_FOR = {
    "compute": ("bfloat16 products, alone", "float32 products, alone"),
    "memory": ("memory copy, alone", "memory read, alone"),
    "host links": ("to device, pinned, alone", "to device, pageable, alone"),
    "collectives": ("all-reduce on",),
    "network": ("all-reduce on", "all-reduce between nodes"),
    "host": ("reading data_dir",),
}


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A part of the machine in a few words; `share` is that of the hardware's limit, as '65 %', or ''."""

    part: str
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
    """One for every part of which anything is known, in the order of PARTS."""
    every, rates = verdicts(result), measured.rates(result)
    known = [(part, [verdict for verdict in every if verdict.part == part]) for part in PARTS]
    return [_tile(part, own, rates) for part, own in known if own]


def _tile(part: str, own: Sequence[Verdict], rates: Sequence[Rate]) -> Tile:
    words = {verdict.verdict for verdict in own}
    # What could not be judged does not make a tile of it, as long as something could.
    word = next(word for word in (*WORDS[:-2], "normal", "not judged") if word in words)
    number, what, share = _number(_standing(part, rates))
    return Tile(
        part=part,
        verdict=word,
        symbol=SYMBOLS[word],
        number=number,
        what=what,
        share=share,
        detail=_detail([verdict for verdict in own if verdict.verdict != "not judged"]),
    )


def _standing(part: str, rates: Sequence[Rate]) -> list[Rate]:
    """The rates of what stands for a part: of every device or pair, at the largest size and number of devices."""
    if part == "GPU links":
        found = [rate for rate in rates if rate.kind in ("pair", "PCIe pair") and rate.what.endswith("alone")]
    else:
        begins = STANDS_FOR[part]
        per_name = ([rate for rate in rates if rate.part == part and rate.what.startswith(name)] for name in begins)
        found = next((own for own in per_name if own), [])
    sizes = [(rate.record.case.get("devices") or 0, rate.record.case.get("bytes") or 0) for rate in found]
    return [rate for rate, size in zip(found, sizes, strict=True) if size == max(sizes)]


def _number(rates: Sequence[Rate]) -> tuple[str, str, str]:
    """The median of these rates, what it is, and its share of the limit."""
    if not rates:
        return "", "", ""
    middle = median(rate.value for rate in rates)
    first = rates[0]
    limits = [rate.limit.rate for rate in rates if rate.limit]
    known = len(limits) == len(rates) and len(set(limits)) == 1
    return first.in_words(middle), _what(first), units.percent(middle / limits[0]) if known else ""


def _what(rate: Rate) -> str:
    if rate.part == "GPU links":
        return "copies, one pair at a time"
    if rate.kind == "node pair":
        return "all-reduce between two nodes"
    alone = rate.what.endswith(", alone")
    return rate.what.removesuffix(", alone") + (", one at a time" if alone else "")


def _detail(judged: Sequence[Verdict]) -> str:
    """'55 of 56 normal'."""
    fine = sum(verdict.fine for verdict in judged)
    return f"{fine} of {len(judged)} normal" if judged else "nothing to compare with"
