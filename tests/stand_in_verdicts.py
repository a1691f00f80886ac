"""Verdicts on health as report/health gives them, chosen by a test."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import pytest


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The fields that report/health promises."""

    part: str
    what: str
    value: str = "100 GB/s"
    normal: str = "120 GB/s is the median of 4"
    verdict: str = "normal"
    advice: str = ""


HEALTHY = (
    Verdict(part="compute", what="GPU 0, float32 products"),
    Verdict(part="compute", what="GPU 1, float32 products"),
    Verdict(part="GPU links", what="GPU 0 to 1"),
    Verdict(part="host", what="reading data_dir", verdict="not judged", normal="nothing is known to compare it with"),
)
ALERTS = {
    word: Verdict(part=part, what=what, verdict=word, advice=f"look at {what}")
    for word, part, what in (
        ("errors", "memory", "GPU 0"),
        ("slowed down", "compute", "GPU 1"),
        ("low", "host links", "GPU 2"),
        ("odd one out", "GPU links", "GPU 0 to 3"),
        ("something new", "network", "port 1"),
    )
}


def install(monkeypatch: pytest.MonkeyPatch, *alerts: Verdict, verdicts: Sequence[Verdict] = HEALTHY) -> None:
    """Let every health result have these verdicts, and these alerts besides."""
    module = ModuleType("scalecard.report.health.verdicts")
    module.verdicts = lambda result: [*verdicts, *alerts]  # type: ignore[attr-defined]
    module.alerts = lambda result: list(alerts)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scalecard.report.health", ModuleType("scalecard.report.health"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
