"""What the report shows of a machine's health: tiles, a map, strips, sentences, and the alerts at its top."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from scalecard.figures import layout
from scalecard.figures.charts import ODD
from scalecard.records import files
from scalecard.records.record import Result
from scalecard.report import figure_files
from scalecard.report.render import render
from scalecard.report.section import Section
from scalecard.report.sections import by_topic, health
from support.health_boxes import Box
from support.texts import faults

HALF = {(2, 5): 0.5}
BOXES = {
    "one": Box(count=1),
    "two": Box(gpu="NVIDIA GeForce RTX 4090", count=2, speed={1: 0.8}),
    "eight": Box(switched=18, pairs=HALF, speed={3: 0.7}),
    "sixteen": Box(switched=18, count=16, pairs=HALF, slots={7: (3, 16), 8: (3, 16)}),
    "32 nodes": Box(switched=18, count=2, nodes=32, nodes_speed={3: 0.5}, adapters=2),
    "workers": Box(count=4, emulated=True),
    "one worker": Box(count=1, emulated=True),
}


@cache
def result_of(name: str) -> Result:
    return BOXES[name].result()


def report_of(result: Result, folder: Path) -> str:
    """The report's HTML."""
    figure_files.save(health.plot([result]), folder / "health.html")
    return render([result], folder)


@pytest.mark.parametrize("name", BOXES)
def test_the_figure_is_drawn_and_no_text_covers_another(name: str) -> None:
    figure = health.plot([result_of(name)])
    layout.finish(figure)
    assert figure.get_size_inches()[1] <= 9, "a page of paper has room for it"
    assert faults(figure) == []
    plt.close(figure)


def outlined(figure: Figure) -> list[tuple[float, float]]:
    """The centres of the framed cells, as (from, to)."""
    frames = [patch for axes in figure.axes for patch in axes.patches if patch.get_linewidth()]
    return sorted((patch.get_y() + 0.5, patch.get_x() + 0.5) for patch in frames)  # type: ignore[attr-defined]


def test_the_map_frames_the_slow_pair_in_both_directions_and_has_its_rates() -> None:
    """85 % of 450 GB/s are 382.5; half of that is 191."""
    figure = health.plot([result_of("eight")])
    assert outlined(figure) == [(2, 5), (5, 2)]
    numbers = {(round(text.get_position()[1]), round(text.get_position()[0])): text for text in figure.axes[0].texts}
    assert len(numbers) == 56
    assert float(numbers[2, 5].get_text()) == pytest.approx(191, abs=2)
    assert float(numbers[0, 1].get_text()) == pytest.approx(382, abs=3)


def test_too_many_cells_have_no_numbers_but_frames() -> None:
    figure = health.plot([result_of("32 nodes")])
    framed = {place for pair in outlined(figure) for place in pair}
    assert len(outlined(figure)) == 62, "31 others, both ways"
    assert framed == set(map(float, range(32)))


def test_in_the_strips_the_slow_one_has_its_number() -> None:
    figure = health.plot([result_of("eight")])
    (strips,) = (axes for axes in figure.axes if axes.get_title(loc="left") == "every device")
    assert {text.get_text().strip() for text in strips.texts} == {"3"}
    slow = [line for line in strips.lines if line.get_color() == ODD]
    assert sorted(float(x) for line in slow for x in line.get_xdata()) == pytest.approx([70] * 5, abs=1)  # type: ignore[arg-type]


def test_a_tile_has_the_worst_verdict_of_its_part_and_its_number_or_that_which_stands_for_the_part() -> None:
    found = {tile.part: tile for tile in health.tiles(result_of("eight"))}
    expected = {
        "compute": ("odd one out", "30.4 TFLOP/s", 0.455),  # of 66.9, by GPU 3 in float32
        "memory": ("normal", "2466 GB/s", 0.736),  # of 3350
        "host links": ("normal", "51.7 GB/s", 0.82),  # of 63
        "GPU links": ("odd one out", "191 GB/s", 0.425),
    }
    for part, (verdict, number, share) in expected.items():
        tile = found[part]
        assert (tile.verdict, tile.share) == (verdict, pytest.approx(share, abs=5e-3))
        value, unit = number.split()
        assert tile.number.endswith(unit)
        assert float(tile.number.split()[0]) == pytest.approx(float(value), rel=5e-3)
    assert found["collectives"].verdict == "low"
    assert found["host"].verdict == "normal"
    assert "network" not in found
    assert found["compute"].trouble
    assert not found["memory"].trouble


def test_over_nodes_the_network_has_a_tile() -> None:
    found = {tile.part: tile for tile in health.tiles(result_of("32 nodes"))}
    assert found["network"].verdict == "odd one out"
    assert found["collectives"].verdict == "normal"


@pytest.mark.parametrize("name", ["one", "two", "workers", "one worker"])
def test_a_file_of_it_can_be_written_read_and_reported(name: str, tmp_path: Path) -> None:
    path = tmp_path / "box" / "health.json"
    files.save(result_of(name), path)
    result = files.load(path)
    text = report_of(result, tmp_path)
    assert text.count('class="tile') >= len(health.tiles(result))
    assert ("topo -m" in text) == (name not in ("one", "workers", "one worker"))
    for finding in Section.of(result).findings:
        assert finding.text.endswith(".")


def test_a_fault_is_at_the_top_of_the_report_once(tmp_path: Path) -> None:
    text = report_of(Box(switched=18, count=4, speed={3: 0.6}).result(), tmp_path)
    top = text[: text.index('id="findings"')]
    assert top.count('class="warning"') == 1
    assert top.count("GPU 3") == 2, "in the warning and in its tile"
    assert "Odd one out:" in top
    healthy = report_of(Box(switched=18, count=2).result(), tmp_path)
    assert 'class="warning"' not in healthy[: healthy.index('id="findings"')]


def test_commands_are_shown_as_such_and_names_stay_text(tmp_path: Path) -> None:
    result = result_of("eight")
    html = report_of(replace(result, warnings=["`<b>` is no command"]), tmp_path)
    assert "<code>nvidia-smi nvlink -e</code>" in html
    assert "<b>" not in html


def test_of_workers_nothing_is_said_about_this_machine(tmp_path: Path) -> None:
    """They are compared with one another, and no verdict on them is a warning of the report."""
    slow = Box(count=4, emulated=True, speed={2: 0.7}).result()
    assert Section.of(slow).judgements == []
    text = report_of(slow, tmp_path)
    assert 'class="warning"' not in text[: text.index('id="findings"')]
    assert "Worker 2" in text


def test_sentences_lead_with_the_faults() -> None:
    section = Section.of(result_of("eight"))
    first, second = by_topic(section.findings)[:2]
    assert first.text.startswith("GPU 3")
    assert second.text.startswith("GPU 2 and GPU 5")
    assert section.headline == "2 alerts"
    assert Section.of(Box(switched=18).result()).headline == "healthy"
