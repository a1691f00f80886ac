"""Many platforms on one page: a row each, numbers that link to their reports, and trials on CPUs apart."""

import re
from pathlib import Path

import pytest
from scalecard.cli import commands
from scalecard.records import files
from scalecard.records.record import Result
from support.every_experiment import every_result
from support.health_boxes import Box
from support.two_platforms import write_report


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two boxes, one with a card at half of its lanes, and a CPU; the report is of the first."""
    folder = tmp_path / "results"
    for name, box in (("whole", Box(switched=18)), ("narrow", Box(switched=18, count=4, slots={1: (5, 8)}))):
        save(box.result(), folder / name)
    for result in every_result("cpus"):
        if result.experiment in ("health", "strategies"):
            save(result, folder / "cpus")
    written = write_report([files.load(folder / "whole" / "health.json")], folder)
    assert written == folder / "report.html"
    return folder


def save(result: Result, folder: Path) -> None:
    """Under the platform's name that the folder has."""
    text = files.as_json(result).replace(f'"platform":"{result.platform}"', f'"platform":"{folder.name}"')
    assert f'"platform":"{folder.name}"' in text
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result.experiment}.json").write_text(text)


def gallery(monkeypatch: pytest.MonkeyPatch, *arguments: Path | str) -> int:
    monkeypatch.setattr("sys.argv", ["scalecard", "gallery", *map(str, arguments)])
    return commands.main()


def rows(page: str, label: str) -> list[list[str]]:
    """The cells of a table, without their tags."""
    table = page[page.index(f'aria-label="{label}"') :]
    body = table[table.index("<tbody>") : table.index("</tbody>")]
    return [
        [re.sub(r"<[^>]+>|^[^<]*>", "", cell).strip().replace("\u00a0", " ") for cell in re.split(r"<t[dh]\b", row)[1:]]
        for row in body.split("<tr>")[1:]
    ]


def test_each_platform_is_a_row_and_its_numbers_link_to_its_report(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "shared" / "gallery.html"
    output.parent.mkdir()
    assert gallery(monkeypatch, results, "--output", output) == 0
    page = output.read_text("utf-8")
    narrow, whole = rows(page, "Machines")
    assert "4 x H100 80GB" in narrow
    assert any(cell.startswith("1 fault found; ") for cell in narrow)
    assert "Healthy: all 434 checks passed" in whole
    assert any(re.fullmatch(r"6\d\d TFLOP/s", cell) for cell in whole)
    assert '<a href="../results/report.html#health">Healthy: all 434 checks passed</a>' in page
    assert page.count("report.html#summary") == 1, "the report is of one of them"
    assert "GPU links" in page


def test_trials_on_cpus_have_a_table_of_their_own(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "gallery.html"
    assert gallery(monkeypatch, results / "cpus", results / "whole", "--output", output) == 0
    page = output.read_text("utf-8")
    assert len(rows(page, "Machines")) == 1
    ((*_, platform),) = rows(page, "Trials on CPUs: devices are emulated")
    assert platform == "cpus"


def test_what_cannot_be_shown_is_named_and_costs_no_page(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "gallery.html"
    (results / "narrow" / "health.json").write_text("{")
    assert gallery(monkeypatch, results, "--output", output) == 0
    assert "left out: narrow: " in capsys.readouterr().err
    assert "<code>narrow</code>" in output.read_text("utf-8")
    assert len(rows(output.read_text("utf-8"), "Machines")) == 1


def test_a_folder_without_results_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert gallery(monkeypatch, tmp_path / "empty", "--output", tmp_path / "gallery.html") == 2
    assert f"'{tmp_path / 'empty'}': no result files in it, nor in its folders" in capsys.readouterr().err
    assert not (tmp_path / "gallery.html").exists()
