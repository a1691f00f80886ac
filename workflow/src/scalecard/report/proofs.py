"""What was proven of every case that was timed, and what one call of it was seen to do."""

from dataclasses import dataclass

from scalecard.records.record import Check, Count, Result
from scalecard.report import units, words

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


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One case in words: what was proven of it, and what was counted."""

    platform: str
    case: str
    proven: list[str]
    counted: list[str]


def proofs(result: Result) -> list[Proof]:
    """One per case that was timed; what was skipped or failed has none."""
    return [
        Proof(
            platform=result.platform,
            case=words.case(record.case),
            proven=[_proven(check) for check in record.checks],
            counted=[_counted(count) for count in record.work],
        )
        for record in result.records
        if record.checks or record.work
    ]


def _proven(check: Check) -> str:
    found = "exactly equal" if check.difference == 0 else f"differs by {check.difference:.2g}"
    return f"{check.name}: {check.dtype}, {found} (allowed {check.tolerance:.2g})"


def _counted(count: Count) -> str:
    return f"{COUNTED.get(count.name, count.name)}: {_amount(count)}"


def _amount(count: Count) -> str:
    if count.name.endswith("FLOPs"):
        return units.count_flops(count.counted)
    return units.count_bytes(count.counted) if _in_bytes(count.name) else f"{count.counted:,.10g}"


def _in_bytes(name: str) -> bool:
    return "bytes" in name or name.startswith("received")
