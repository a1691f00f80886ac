"""Verdicts on health as report/health gives them, chosen by a test."""

from collections.abc import Sequence

import pytest
from scalecard.report.health import verdicts as judged
from scalecard.report.health.verdict import Verdict


def _of(part: str, what: str, verdict: str = "normal", normal: str = "120 GB/s is the median of 4") -> Verdict:
    advice = "" if verdict in ("normal", "not judged") else f"look at {what}"
    return Verdict(part=part, what=what, value="100 GB/s", normal=normal, verdict=verdict, advice=advice)


HEALTHY = (
    _of("compute", "GPU 0, float32 products"),
    _of("compute", "GPU 1, float32 products"),
    _of("GPU links", "GPU 0 to 1"),
    _of("host", "reading data_dir", "not judged", "nothing is known to compare it with"),
)
ALERTS = {
    "errors": _of("memory", "GPU 0", "errors"),
    "slowed down": _of("compute", "GPU 1", "slowed down"),
    "low": _of("host links", "GPU 2", "low"),
    "odd one out": _of("GPU links", "GPU 0 to 3", "odd one out"),
}


def install(monkeypatch: pytest.MonkeyPatch, *alerts: Verdict, verdicts: Sequence[Verdict] = HEALTHY) -> None:
    """Let every health result have these verdicts, and these alerts besides."""
    monkeypatch.setattr(judged, "verdicts", lambda result: [*verdicts, *alerts])
    monkeypatch.setattr(judged, "alerts", lambda result: list(alerts))
