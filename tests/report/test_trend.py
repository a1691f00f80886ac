"""Numbers over nights: what changed, and whether the last night is slower than those before, by compare's own rule."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from scalecard.analysis.compare import DRIVER, Change, compare
from scalecard.cli import compare_output
from scalecard.records.record import Record, Result
from scalecard.report import figure_files, trend, trend_figure
from scalecard.report.trend import Series, Trend, of_indices, of_platform
from support.nights import Nights, step

Make = Callable[..., Result]
USUAL = (1.000, 1.001, 0.999, 1.002, 1.000, 0.998, 1.001)
GPUS = {"kind": "cuda", "gpus": ["H200"], "gpu_uuid_hashes": ["a"]}


@pytest.fixture
def nights(tmp_path: Path, make_result: Make) -> Nights:
    return Nights(tmp_path, make_result)


def only_series(found: Trend) -> Series:
    (series,) = found.series
    return series


@pytest.mark.parametrize(("last", "verdict"), [(1.10, "slower"), (0.90, "faster"), (1.001, "same"), (1.02, "unclear")])
def test_the_last_night_against_those_before(nights: Nights, last: float, verdict: str) -> None:
    nights.keep_all([*USUAL, last])
    found = of_platform(nights.folder())
    series = only_series(found)
    assert (series.verdict, len(series.points)) == (verdict, 8)
    assert series.row
    assert series.row.ratio
    # The middle process of every night is 0.035 % above its time, and so is the median of all.
    assert series.row.ratio.value == pytest.approx(last / median(USUAL), rel=1e-3)
    assert series.usual == pytest.approx(128 / (median(USUAL) * 1.00035) / 1e12, rel=1e-5)
    assert found.slower == ([series] if verdict == "slower" else [])


def test_a_single_night_before_is_compared_as_compare_does(nights: Nights) -> None:
    nights.keep(1.0)
    first = nights.last
    nights.keep(1.05)
    series = only_series(of_platform(nights.folder()))
    row = series.row
    assert series.usual == series.points[0][1].value
    (expected,) = compare([first], [nights.last]).rows
    assert row
    assert row.ratio
    assert expected.ratio
    assert (row.verdict, expected.verdict) == ("slower", "slower")
    assert row.ratio.value == pytest.approx(expected.ratio.value, rel=1e-5)


def test_each_night_counts_as_one_process_however_many_it_has(nights: Nights) -> None:
    """Nights that differ by 3 % make 4 % no finding, though the processes of a night agree to 0.1 %."""
    nights.keep_all([1.00, 1.03, 0.97, 1.02, 0.98, 1.00, 1.04])
    row = only_series(of_platform(nights.folder())).row
    assert row
    assert [len(process) for process in row.old.samples] == [24] * 6
    assert row.old.samples[0][:4] == pytest.approx([0.999, 1.0, 1.001, 0.9991]), "processes take turns"
    assert len(row.new.samples) == 3
    assert row.verdict == "unclear"


def named(record: Record, label: str) -> Record:
    """As an index holds it."""
    return replace(record, case={"number": label}, telemetry=[])


def test_only_the_nights_just_before_count(nights: Nights) -> None:
    nights.keep(1.0)
    ((first,), _) = trend.kept_nights.refreshed(nights.folder())
    (number,) = first.numbers
    times = [2.0] * 20 + [1.0] * trend.BEFORE + [1.1]
    entries = [
        replace(first, night=f"{20260101 + i}T021000Z", numbers=[replace(number, record=named(step(t), number.label))])
        for i, t in enumerate(times)
    ]
    series = only_series(trend.over(entries, "box"))
    assert series.verdict == "slower"
    assert series.row
    assert len(series.row.old.samples) == trend.BEFORE
    assert len(series.points) == 21 + trend.BEFORE


def test_a_new_workload_is_compared_with_its_own_nights_or_told(nights: Nights) -> None:
    nights.keep_all(USUAL)
    nights.keep(9.0, spec={"train_images": 5})
    series = only_series(of_platform(nights.folder()))
    assert series.verdict == "not compared"
    assert "train_images all -> 5" in trend.ratio(series)
    nights.keep_all(USUAL)
    row = only_series(of_platform(nights.folder())).row
    assert row
    assert row.ratio
    assert row.verdict == "same"
    assert len(row.old.samples) == 13, "the night with another workload does not count"


def test_many_numbers_are_judged_together(nights: Nights, make_result: Make) -> None:
    """The family control is compare's: the same difference counts alone, and not among many that did not change."""
    found = []
    for number in (1, 60):
        box = Nights(nights.root / str(number), make_result)
        box.keep_all([1.00, 1.01, 0.99])
        entries = trend.kept_nights.refreshed(box.folder())[0]
        box.keep(1.06)
        last = [entry for entry in trend.kept_nights.refreshed(box.folder())[0] if entry.night > entries[-1].night]
        noisy = [_noisy(entry, night, number) for night, entry in enumerate([*entries, *last])]
        found.append(trend.over(noisy, "box").series[0])
    assert [each.row.alone for each in found if each.row] == ["slower", "slower"]
    assert [each.verdict for each in found] == ["slower", "unclear"]


def _noisy(entry: trend.Entry, night: int, number: int) -> trend.Entry:
    """The entry's number first, then others whose processes differ by 2 % and that are the same every night."""
    (own,) = entry.numbers
    steady = [0.98 + 0.001 * ((7 * night) % 3), 1.0, 1.02]
    others = [
        replace(
            own,
            label=f"other {i}",
            record=replace(
                own.record, case={"number": f"other {i}"}, samples=[[m + 1e-5 * j for j in range(8)] for m in steady]
            ),
        )
        for i in range(number - 1)
    ]
    return replace(entry, numbers=[own, *others])


def test_changes_between_nights_are_told_over_a_new_driver(nights: Nights) -> None:
    nights.keep_all([1.0, 1.0], platform="old", machine={**GPUS, "driver": "570.1"})
    nights.keep(1.2, platform="new", machine={**GPUS, "driver": "580.2", "software": "f" * 12}, torch="2.10")
    nights.keep(1.2, platform="new", machine={**GPUS, "driver": "580.2", "software": "f" * 12}, torch="2.10")
    found = of_platform(nights.folder("new"))
    torch = nights.last.environment["torch"]
    assert torch == "2.10"
    assert [night.platform for night in found.nights] == ["old", "old", "new", "new"]
    assert [bool(night.changes) for night in found.nights] == [False, False, True, False]
    driver, torch_version = found.nights[2].changes
    assert driver == Change(DRIVER, "570.1", "580.2")
    assert (torch_version.fact.key, torch_version.new) == ("torch", "2.10")
    assert of_platform(nights.folder("old")).nights == found.nights
    text = compare_output.trend_output(found, nights=2).text
    assert text.splitlines()[0].startswith("new: 4 nights, 2026-01-02 02:10 to 2026-01-05 02:10 UTC; ")
    assert len(re.findall(r"^  2026-", text, re.MULTILINE)) == 2
    assert "[driver 570.1 -> 580.2; torch " in text
    assert len(re.findall(r"^  2026-", compare_output.trend_output(found, nights=0).text, re.MULTILINE)) == 4


def test_counters_and_clocks_are_no_changes(nights: Nights) -> None:
    nights.keep(1.0, ram_bytes=1)
    nights.keep(1.0, ram_bytes=2)
    assert [night.changes for night in of_platform(nights.folder()).nights] == [[], []]


def test_what_was_not_measured_in_the_last_night_has_no_verdict(nights: Nights) -> None:
    nights.keep_all([1.0, 1.0])
    entries, _ = trend.kept_nights.refreshed(nights.folder())
    other = replace(entries[-1], experiment="ddp", night="20270101T000000Z")
    found = {series.experiment: series.verdict for series in trend.over([*entries, other], "box").series}
    assert found == {"async_timing": "not in the last night", "ddp": "first night"}


def test_json_has_values_with_intervals_for_every_night(nights: Nights) -> None:
    nights.keep_all([*USUAL, 1.2])
    told = json.loads(compare_output.trend_output(of_platform(nights.folder()), nights=10).json)
    assert (told["platform"], told["margin"], len(told["nights"])) == ("box", 0.02, 8)
    (number,) = told["numbers"]
    assert (number["verdict"], number["unit"], number["number"]) == ("slower", "TFLOP/s", "float32 products of 4 rows")
    assert number["interval"][0] < number["ratio"] < number["interval"][1]
    assert [value["night"] for value in number["values"]] == [night["night"] for night in told["nights"]]
    for value in number["values"]:
        low, high = value["interval"]
        assert 0 < low < value["value"] < high


def test_no_night_and_an_unknown_experiment_are_one_line(nights: Nights) -> None:
    nights.measure(1.0)
    with pytest.raises(ValueError, match=r"box.*no night was kept.*scalecard keep box"):
        of_platform(nights.folder())
    nights.keep(1.0)
    with pytest.raises(ValueError, match=r"--only ddp: .*\(they have: async_timing\)"):
        of_platform(nights.folder(), only=["ddp"])


def test_the_figure_is_narrow_has_a_panel_a_number_and_marks_what_changed(nights: Nights, tmp_path: Path) -> None:
    nights.keep_all(USUAL, platform="old", machine={**GPUS, "driver": "570.1"})
    nights.keep(1.3, platform="new", machine={**GPUS, "driver": "580.2"})
    found = of_platform(nights.folder("new"))
    drawn = trend_figure.plot(found)
    (axes,) = drawn.axes
    assert drawn.get_figwidth() < 4, "a phone is 390 pixels wide, and text of 8.8 points stays readable"
    lines = {str(line.get_linestyle()) for line in axes.get_lines()}
    assert "--" in lines
    assert ":" not in lines
    assert [text.get_text().strip() for text in axes.texts] == ["driver 580.2"]
    assert any(line.get_marker() == "X" for line in axes.get_lines()), "the last night is slower"
    figure_files.save(drawn, tmp_path / "trend.svg")
    assert "<svg" in (tmp_path / "trend.svg").read_text()


def test_many_nights_have_a_band_for_their_intervals(nights: Nights) -> None:
    nights.keep(1.0)
    ((first,), _) = trend.kept_nights.refreshed(nights.folder())
    entries = [
        replace(first, night=f"{20260101 + i}T021000Z", finished=f"2026-01-01T{i // 60:02}:{i % 60:02}:00+00:00")
        for i in range(trend_figure.MOST_BARS + 1)
    ]
    (few,), (many,) = (trend_figure.plot(trend.over(own, "box")).axes for own in (entries[:-1], entries))
    assert [type(each).__name__ for each in few.collections] == ["LineCollection"]
    assert [type(each).__name__ for each in many.collections] == ["FillBetweenPolyCollection"]


def test_a_single_night_draws_no_panel(nights: Nights) -> None:
    nights.keep(1.0)
    (axes,) = trend_figure.plot(of_platform(nights.folder())).axes
    assert [text.get_text() for text in axes.texts] == ["fewer than two nights"]


def test_a_damaged_index_is_told_in_the_report_and_stops_nothing(nights: Nights) -> None:
    nights.keep_all([1.0, 1.0])
    path = nights.folder() / "history" / "trend.json"
    whole = of_indices([path], "box")
    assert len(whole.nights) == 2
    path.write_text(path.read_text()[:300])
    found = of_indices([path], "box")
    assert (found.nights, found.series) == ([], [])
    assert "scalecard keep box" in trend.page(found)["left_out"][0]
    assert trend_figure.plot(found).axes
    assert of_platform(nights.folder()).nights == whole.nights, "the nights themselves are there"


def test_milliseconds_are_drawn_as_such(nights: Nights) -> None:
    nights.keep_all([1.0, 1.0])
    entries, _ = trend.kept_nights.refreshed(nights.folder())
    in_seconds = [
        replace(e, numbers=[replace(n, amount=0.0, unit="s", record=named(step(0.02), n.label)) for n in e.numbers])
        for e in entries
    ]
    (axes,) = trend_figure.plot(trend.over(in_seconds, "box")).axes
    assert axes.get_title(loc="left").endswith("(ms)")
    low, high = axes.get_ylim()
    assert 19 < low < 20 < high < 21


def test_a_step_of_some_nights_ago_is_told_with_its_size_its_date_and_the_driver(nights: Nights) -> None:
    """Six nights ago products became 6 % slower; the last night is like those just before it."""
    nights.keep_all([*USUAL, *USUAL], platform="old", machine={**GPUS, "driver": "570.1"})
    nights.keep_all([1.06 * time for time in USUAL], platform="new", machine={**GPUS, "driver": "580.2"})
    found = of_platform(nights.folder("new"))
    series = only_series(found)
    (own,) = series.change_points
    assert (series.alike[own.at], own.drift) == (found.nights[14], False)
    assert own.ratio.value == pytest.approx(1.06, rel=1e-3)
    said = trend.since(series, own)
    assert re.fullmatch(
        r"-5\.7 % \(-5\.[89] % to -5\.[56] %\) since 2026-01-16 02:10, 6 nights ago: driver 570\.1 -> 580\.2", said
    )
    assert f"  {said}" in compare_output.trend_output(found, nights=2).text
    (number,) = json.loads(compare_output.trend_output(found, nights=2).json)["numbers"]
    assert [(change["night"], change["drift"]) for change in number["changes"]] == [(found.nights[14].name, False)]
    page = trend.page(found)
    assert (page["worse"], page["since"]) == (1, [f"async timing: {series.label}: {said}"])


def test_a_drift_and_an_outlier_are_told_apart_from_steps(nights: Nights) -> None:
    times = [time * (1 + 0.005 * night) for night, time in enumerate([*USUAL, *USUAL])]
    times[5] = 1.4
    nights.keep_all(times)
    series = only_series(of_platform(nights.folder()))
    assert series.outliers == [5]
    (own,) = series.change_points
    assert own.drift
    assert "little by little since 2026-01-02 02:10, 13 nights ago" in trend.since(series, own)


def test_a_new_workload_is_no_change_of_the_number(nights: Nights) -> None:
    nights.keep_all(USUAL)
    nights.keep_all([9.0 * time for time in USUAL], spec={"train_images": 5})
    assert only_series(of_platform(nights.folder())).change_points == []
