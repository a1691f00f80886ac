"""What was proven of every case that was timed, and what one call of it was seen to do."""

from dataclasses import dataclass

from scalecard.analysis import formatting, ratio_text
from scalecard.records.record import Check, Count, Result

COUNTED = {
    "FLOPs": "arithmetic",
    "all-reduced bytes": "sent in all-reduces",
    "collective bytes": "in collectives",
    "sent bytes": "sent to another rank",
    "read bytes": "read",
    "written bytes": "written",
    "copied bytes": "copied",
    "received bytes": "received by all devices",
    "parameter bytes": "of parameters on all devices",
    "forwards": "forward passes",
    "updates": "updates of every parameter",
    "test FLOPs": "arithmetic of scoring the test images",
}
SHOW = {"FLOP": formatting.count_flops, "B": formatting.count_bytes}


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Cases in words of which the same was proven, with the same differences, and the same was counted."""

    cases: list[str]
    proven: list[str]
    counted: list[str]

    @property
    def num_cases(self) -> int:
        return len(self.cases)


def proofs(result: Result) -> list[Proof]:
    """Of all cases that were timed; what was skipped or failed has none."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for record in result.records:
        if record.checks or record.work:
            key = tuple(map(_proven, record.checks)), tuple(map(_counted, record.work))
            found.setdefault(key, []).append(ratio_text.case(record.case))
    return [Proof(cases=cases, proven=list(key[0]), counted=list(key[1])) for key, cases in found.items()]


def _proven(check: Check) -> str:
    found = "exactly equal" if check.difference == 0 else f"differs by {check.difference:.2g}"
    return f"{check.name}: {check.dtype}, {found} (allowed {check.tolerance:.2g})"


def _counted(count: Count) -> str:
    return f"{COUNTED.get(count.name, count.name)}: {_amount(count)}"


def _amount(count: Count) -> str:
    return SHOW.get(count.unit, "{:,.10g}".format)(count.counted)
