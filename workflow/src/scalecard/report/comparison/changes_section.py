"""The report's part on another platform beside the current one: what changed."""

import math
from collections.abc import Sequence
from typing import Any

from scalecard.analysis import platforms
from scalecard.analysis.comparison.compare import Comparison, changes, compare
from scalecard.analysis.load_results import UNFIT
from scalecard.report.comparison import comparison_tables, sentences, speedups
from scalecard.report.comparison.forest import forest
from scalecard.report.comparison.speedups import Headlines
from scalecard.report.comparison.summaries import CHANGED, grouped
from scalecard.report.section import Section

MOST_CASES = 40  # `scalecard compare` has all of them


def part(other: Sequence[Section], current: Sequence[Section]) -> dict[str, Any]:
    """The values of changes.html.j2 for one other platform: what changed or, of unlike hardware, the speed-ups."""
    old, new = [s.result for s in other], [s.result for s in current]
    try:
        found, refusal = compare(old, new), ""
    except UNFIT as error:
        found, refusal = None, str(error)
    differ = changes(old[0].environment, new[0].environment)
    if platforms.same_hardware(old, new):
        shown = _of_like(found) if found else {"told": f"{sentences.occasion(differ)}: {refusal}."}
        return {"platform": other[0].platform, "changes": list(map(sentences.change, differ)), **shown}
    said = [{section.name: section.headline for section in side} for side in (other, current)]
    software = [sentences.change(each) for each in differ if each.fact.key in sentences.SOFTWARE]
    return {"platform": other[0].platform, **_of_unlike(platforms.nicknames(old, new), found, software, said)}


def _of_like(found: Comparison) -> dict[str, Any]:
    changed = [row for row in found.rows if row.verdict in CHANGED]
    changed.sort(key=lambda row: abs(math.log(row.ratio.value)) if row.ratio else 0.0, reverse=True)
    shown = [*changed, *(row for row in found.rows if row.verdict == "not compared")]
    table = comparison_tables.cases(shown[:MOST_CASES], f"Cases that changed since {found.old}")
    return {
        "told": sentences.sentence(found),
        "notes": [f"{sentences.headline(found)}.", *sentences.notes(found)[1:]],
        "forest": forest(grouped(found.rows), found.margin),
        "cases": table if shown else None,
        "num_cases": len(shown),
    }


def _of_unlike(
    names: tuple[str, str], found: Comparison | None, software: Sequence[str], said: Sequence[Headlines]
) -> dict[str, Any]:
    notes = [f"Besides the hardware, these differ: {'; '.join(software)}."] if software else []
    if found and any(found.only.values()):
        notes.append(f"{found.only['B']} cases were measured only on {names[1]}, {found.only['A']} only on {names[0]}.")
    table = speedups.table(speedups.speed_ups(found.rows if found else [], *said), names)
    return {"speed_ups": table, "notes": notes}
