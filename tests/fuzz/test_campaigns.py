"""`make fuzz` in small: a seed gives the same inputs again, and none is used or refused wrongly."""

import sys
from pathlib import Path

import pytest
from support.projects import ROOT

sys.path.insert(0, str(Path(__file__).parent))

import configurations


def test_altered_configurations_are_used_with_cause_or_refused_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    outcomes, offending = configurations.configurations(seed=1, count=60)
    assert offending == []
    assert sum(outcomes.values()) == 60
    assert {outcome.split(": ")[1] for outcome in outcomes} == {"accepted", "refused"}


def test_what_is_wrongly_accepted_or_unclear_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(configurations, "resolve", lambda config, check: 1 / 0)
    outcomes, offending = configurations.configurations(seed=1, count=30)
    assert any("TRACEBACK" in outcome for outcome in outcomes)
    assert any(example.startswith("ZeroDivisionError") for example in offending)
