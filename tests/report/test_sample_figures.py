"""The data of the figures of the sample in results/, which are committed beside it, are what its results give today."""

import csv
import subprocess
from pathlib import Path

import pytest
from scalecard.report import figure_files
from support.projects import ROOT

SAMPLE = ROOT / "results/h200x1-torch211-card"
RESULTS = sorted(SAMPLE.glob("*.json"))
NUMBERS = ("value", "low", "high")
ANEW = "`make sample` writes the data of the sample's figures anew"

pytestmark = pytest.mark.skipif(not RESULTS, reason="a copy of the project has no results")


def rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The notes above the table, and its rows."""
    lines = path.read_text().splitlines()
    return [line for line in lines if line.startswith("# ")], [
        *csv.DictReader(line for line in lines if not line.startswith("# "))
    ]


def without_numbers(row: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in row.items() if name not in NUMBERS}


@pytest.mark.parametrize("result", RESULTS, ids=lambda path: path.stem)
def test_the_data_of_the_samples_figure_are_those_of_its_results(result: Path, tmp_path: Path) -> None:
    drawn = tmp_path / f"{result.stem}.csv"
    assert figure_files.draw(result.stem, [result], [drawn]) == []
    (notes, found), (kept_notes, kept) = rows(drawn), rows(SAMPLE / "figures" / drawn.name)
    assert kept_notes == notes, ANEW
    assert [*map(without_numbers, kept)] == [*map(without_numbers, found)], ANEW
    for row, own in zip(found, kept, strict=True):
        for name in NUMBERS:
            assert bool(row[name]) == bool(own[name]), (ANEW, own, name)
            # The file has six digits, of which another processor may round the last one otherwise.
            assert float(own[name] or 0) == pytest.approx(float(row[name] or 0), rel=1e-4), (ANEW, own, name)


def test_the_sample_has_the_data_of_its_experiments_and_no_other_file() -> None:
    assert [path.name for path in sorted((SAMPLE / "figures").iterdir())] == [f"{path.stem}.csv" for path in RESULTS]


def test_an_epoch_of_the_sample_is_the_fifth_of_its_nine_times_between_the_second_and_the_eighth() -> None:
    """6.89407 6.8946 6.89466 6.89488 6.89498 6.89537 6.89606 6.89612 6.89689"""
    _, shown = rows(SAMPLE / "figures" / "dp_concise.csv")
    (epoch,) = [row for row in shown if (row["panel"], row["x"]) == ("epoch", "1 dev., batch 256")]
    assert [epoch[name] for name in (*NUMBERS, "unit", "samples")] == ["6.89498", "6.8946", "6.89612", "s", "9"]


def test_git_keeps_the_samples_data_and_ignores_what_a_run_draws() -> None:
    drawn = [f"{folder}/figures/ddp.csv" for folder in ("results", "results/h200x1-torch211-card")]
    ignored = subprocess.run(["git", "check-ignore", "--no-index", *drawn], cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout.split() == drawn[:1]
