"""A few files of the campaign in tests/fuzz; `make fuzz` alters thousands."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from scalecard.records.record import Result
from support.projects import ROOT


def load(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


CAMPAIGN = load(ROOT / "tests" / "fuzz" / "result_files.py")


def test_altered_results_are_accepted_or_refused_in_one_line() -> None:
    counts, wrong = CAMPAIGN.results(seed=1, count=5)
    assert wrong == []
    assert sum(counts.values()) == 5


def test_the_campaign_notices_what_it_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that lets everything through ends in tracebacks."""
    monkeypatch.setattr("scalecard.records.files.parse", lambda text, where: Result(**json.loads(text)))
    _, wrong = CAMPAIGN.results(seed=1, count=3)
    assert wrong
