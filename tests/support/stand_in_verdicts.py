"""Verdicts on health as analysis/health gives them, chosen by a test."""

from collections.abc import Sequence

import pytest
from scalecard.analysis.health.verdict import Kind, Part, Verdict
from scalecard.cli import health_gate


def _of(
    part: Part,
    who: str,
    verdict: str = "normal",
    normal: str = "120 GB/s is the median of 4",
    kind: Kind = Kind.OTHER,
) -> Verdict:
    return Verdict(part, kind, (), verdict=verdict, value="100 GB/s", normal=normal, who=who)


HEALTHY = (
    _of(Part.COMPUTE, "GPU 0, float32 products"),
    _of(Part.COMPUTE, "GPU 1, float32 products"),
    _of(Part.GPU_LINKS, "GPU 0 to 1"),
    _of(Part.HOST, "reading data_dir", "not judged", "nothing is known to compare it with"),
)
ALERTS = {
    "errors": _of(Part.MEMORY, "GPU 0", "errors", kind=Kind.MEMORY_ERRORS),
    "slowed down": _of(Part.COMPUTE, "GPU 1", "slowed down", kind=Kind.SLOWED_DOWN),
    "low": _of(Part.HOST_LINKS, "GPU 2", "low", kind=Kind.SLOT_WIDTH),
    "odd one out": _of(Part.GPU_LINKS, "GPU 0 to 3", "odd one out", kind=Kind.PAIR),
}


def install(monkeypatch: pytest.MonkeyPatch, *alerts: Verdict, verdicts: Sequence[Verdict] = HEALTHY) -> None:
    """Let every health result have these verdicts, and these alerts besides."""
    monkeypatch.setattr(health_gate, "verdicts", lambda result: [*verdicts, *alerts])
    monkeypatch.setattr(health_gate, "alerts", lambda result: list(alerts))
