"""The report of a platform with kept nights: what it says of them, and that a hundred cost next to nothing."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scalecard.analysis.platforms import gather
from scalecard.jobs import inputs
from scalecard.records.files import as_json
from scalecard.records.record import Result
from scalecard.report import answers, figure_files, kept_nights, night_folders, render, trend_figure
from scalecard.report.trend import of_platform
from support.every_experiment import every_result
from support.nights import Nights

GPUS = {"kind": "cuda", "gpus": ["H200"], "gpu_uuid_hashes": ["a"]}


def write(nights: Nights, platform: str) -> str:
    """Draw what is there, and write the report as the workflow does."""
    drawn = nights.root / "results" / "figures"
    drawn.mkdir(exist_ok=True)
    (drawn / "async_timing.html").write_text("<svg></svg>")
    history = night_folders.indices(nights.folder(platform))
    if history:
        figure_files.save(trend_figure.plot(of_platform(nights.folder(platform))), drawn / "trend.html")
    output = nights.root / "results" / "report.html"
    render.write([nights.folder(platform) / "async_timing.json"], drawn, output, history=history)
    return output.read_text()


@pytest.fixture
def nights(tmp_path: Path, make_result: Callable[..., Result]) -> Nights:
    return Nights(tmp_path, make_result)


def test_the_report_shows_numbers_over_nights_and_what_changed(nights: Nights) -> None:
    nights.keep_all([1.0, 1.001, 0.999, 1.0], platform="old", machine={**GPUS, "driver": "570.1"})
    nights.keep(1.2, platform="new", machine={**GPUS, "driver": "580.2"})
    text = write(nights, "new")
    for said in (
        'href="#trend"',
        "new: 5 nights, 2026-01-02 02:10 to 2026-01-06 02:10 UTC",
        "Slower than the nights before:",
        "float32 products of 4 rows",
        "driver 570.1 -&gt; 580.2",
        'class="plot"',
    ):
        assert said in text
    assert text.count("<svg") == 2


def test_without_kept_nights_there_is_no_such_section(nights: Nights) -> None:
    nights.measure(1.0)
    assert 'id="trend"' not in write(nights, "box")


def test_a_damaged_index_is_named_and_stops_nothing(nights: Nights) -> None:
    nights.keep_all([1.0, 1.0])
    (path,) = night_folders.indices(nights.folder())
    text = path.read_text()
    write(nights, "box")
    path.write_text(text[:200])
    assert "left out: " in write(nights, "box")


def test_nights_are_neither_results_nor_inputs(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is in history/, the workflow has one input more, and the results are the same."""
    monkeypatch.chdir(nights.root)
    path = nights.measure(1.0)

    def seen() -> tuple[object, ...]:
        found = gather([path])
        return found.results, found.left_out, inputs.result_files("async_timing", "box"), inputs.ignored_folders()

    before = seen()
    assert inputs.histories("box") == []
    nights.keep(1.0)
    path.write_text(as_json(nights.last))
    copy = nights.folder() / "history" / "20250101T000000Z"
    copy.mkdir()
    (copy / "async_timing.json").write_text("{")
    (nights.folder() / "history" / "async_timing.json").write_text("{")
    assert seen()[1:] == before[1:]
    assert inputs.histories("box") == ["results/box/history/trend.json"]


def made_up(platform: Path, number: int) -> None:
    """An index of this many nights of all experiments."""
    entries = [kept_nights.entry_of(result, "night") for result in every_result(platform.name)]
    for number_ in range(number):
        (platform / "history" / f"{20260101 + number_}T021000Z").mkdir(parents=True)
    named = [replace(e, night=f"{20260101 + n}T021000Z") for n in range(number) for e in entries]
    kept_nights.save(named, platform)


def test_a_hundred_nights_cost_a_report_no_more_than_the_report_itself(tmp_path: Path) -> None:
    """Of this process's time; measured: a fifth more. The workflow's inputs take as long as of a single night."""
    platform, drawn = tmp_path / "box", tmp_path / "figures"
    drawn.mkdir()
    platform.mkdir()
    results = every_result("box")
    for result in results:
        (platform / f"{result.experiment}.json").write_text(as_json(result))
        (drawn / f"{result.experiment}.html").write_text("<svg></svg>")
    for name in ("trend", *answers.names()):
        (drawn / f"{name}.html").write_text("<svg></svg>")
    made_up(platform, 100)
    assert len(json.loads((platform / "history" / "trend.json").read_text())["entries"]) == 100 * len(results)
    paths = sorted(platform.glob("*.json"))

    def seconds(history: list[Path]) -> float:
        start = time.process_time()
        render.write(paths, drawn, tmp_path / "report.html", history=history)
        return time.process_time() - start

    seconds([])
    without, with_nights = (
        min(seconds(history) for _ in range(2)) for history in ([], night_folders.indices(platform))
    )
    assert with_nights < 3 * without
    assert "100 nights" in (tmp_path / "report.html").read_text()


def test_the_first_screen_names_what_became_slower_and_stayed_so(nights: Nights) -> None:
    nights.keep_all([1.0, 1.001, 0.999, 1.0, 1.002, 0.998], platform="old", machine={**GPUS, "driver": "570.1"})
    assert "Slower over the nights" not in write(nights, "old")
    nights.keep_all([1.06, 1.061, 1.059, 1.06], platform="new", machine={**GPUS, "driver": "580.2"})
    text = write(nights, "new")
    line = "since 2026-01-08 02:10, 3 nights ago: driver 570.1 -&gt; 580.2"
    assert text.index("Slower over the nights:") < text.index(line) < text.index("</header>")
    assert text.count(line) == 3, "there, in the list, and in the table"
