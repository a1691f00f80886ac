"""What a figure shows is what was measured: drawn, said when a reader points at it, and written as CSV."""

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scalecard.figures import charts, layout, points, style, svg
from scalecard.figures.svg import sparkline
from scalecard.records.record import Record, Result
from scalecard.report import figure_files, sections
from scalecard.report.sections import allreduce, ddp, dp_concise, hybrid, model_parallel, pipeline
from support.builders import timed
from support.every_experiment import every_result

Make = Callable[..., Result]
CURVES = Record(case={"devices": 1}, metric="accuracy", unit="fraction", samples=[[0.1, 0.5], [0.2, 0.7], [0.1, 0.6]])


@pytest.fixture
def reduced(make_result: Make) -> Result:
    """The library's all-reduce of 1 MiB on 4 devices in about 2 ms, and of 4 KiB in 10 us."""
    small = timed([10e-6] * 7, algorithm="torch.distributed", devices=4, bytes=4096, backend="gloo")
    large = [0.0019, 0.0021, 0.002, 0.002, 0.002, 0.0022, 0.0018]
    records = [small, timed(large, algorithm="torch.distributed", devices=4, bytes=2**20, backend="gloo")]
    return make_result(records, experiment="allreduce", spec={"bytes": [4096, 2**20]})


def test_a_rate_is_the_amount_over_the_time_and_its_bounds_change_sides(reduced: Result) -> None:
    point = points.rated(reduced, reduced.records[1], 4.0, series="a", x=1)
    assert (point.value, point.low, point.high) == pytest.approx((2000.0, 4 / 0.0022, 4 / 0.0018))
    assert point.samples == 7


def test_after_each_epoch_the_median_of_the_processes_is_shown(make_result: Make) -> None:
    shown = points.epochs(make_result([CURVES]), CURVES, series="1 device")
    assert [(point.x, point.value, point.samples) for point in shown] == [(1, 0.1, 3), (2, 0.6, 3)]


def test_each_mark_says_its_value_interval_number_and_platform(reduced: Result, tmp_path: Path) -> None:
    figure_files.save(allreduce.plot([reduced]), tmp_path / "allreduce.html")
    text = (tmp_path / "allreduce.html").read_text()
    assert text.count("<svg") == 2, "one for each panel, so that they stack on a phone"
    said = re.findall(r'<g class="point"><title>([^<]+)</title>', text)
    assert "torch.distributed, 1 MiB: 0.786 GB/s (0.715 GB/s to 0.874 GB/s), n = 7, box (emulated)" in said
    assert len(re.findall(r'id="point-', text)) == 0
    assert len(ids := re.findall(r'\bid="([^"]+)"', text)) == len(set(ids)), "no id twice on a page"


def test_the_data_of_a_figure_are_in_its_csv(reduced: Result, tmp_path: Path) -> None:
    figure_files.save(allreduce.plot([reduced]), tmp_path / "allreduce.csv", "All-reduce", ["box: a machine"])
    notes, table = (tmp_path / "allreduce.csv").read_text().split("panel,", 1)
    assert notes == "# All-reduce\n# box: a machine\n"
    rows = list(csv.DictReader(io.StringIO("panel," + table)))
    (row,) = [row for row in rows if row["panel"] == "bandwidth" and float(row["x"]) == 2**20]
    assert float(row["value"]) == pytest.approx(2 * 3 / 4 * 2**20 / 0.002 / 1e9, rel=1e-4)
    assert (row["unit"], row["samples"], row["platform"]) == ("GB/s", "7", "box (emulated)")


def test_a_file_says_what_it_shows_and_where_it_is_from(reduced: Result, tmp_path: Path) -> None:
    outputs = [tmp_path / f"figure.{suffix}" for suffix in ("svg", "png", "pdf")]
    for path in outputs:
        figure_files.save(allreduce.plot([reduced]), path, "All-reduce", ["box: commit abc"])
        content = path.read_bytes()
        assert b"All-reduce" in content
        assert b"box: commit abc" in content
        figure_files.save(allreduce.plot([reduced]), path, "All-reduce", ["box: commit abc"])
        assert path.read_bytes() == content, "the same whenever it is drawn"


def test_where_numbers_are_from_is_said_of_each_platform(make_result: Make) -> None:
    here, there = make_result([], experiment="ddp"), make_result([], experiment="ddp", platform="older")
    lines = figure_files.origins([here, replace(here, finished="2026-02-01T00:00:00.000+00:00"), there])
    assert len(lines) == 2
    assert re.fullmatch(
        r"box \(emulated\): .+ cores; ScaleCard, commit \w+(\+changes)?; 2026-01-01 to 2026-02-01", lines[0]
    )


def test_no_panel_has_more_than_four_lines(tmp_path: Path) -> None:
    """On one platform, and with as many others as are drawn."""
    platforms = [every_result(f"platform-{number}", gpus=4, scale="full") for number in range(4)]
    for results in (platforms[:1], platforms):
        for name in ("async_timing", "allreduce", "copy_cost", "ddp", "dp_scratch", "dp_concise", "hybrid", "pipeline"):
            own = [result for each in results for result in each if result.experiment == name]
            style.tell_platforms_apart(own, None)
            figure = sections.load(name).plot(own)
            for axes in figure.axes:
                shown = [s.point for s in points.of(figure) if s.axes is axes and not isinstance(s.point.x, str)]
                assert len({(p.series, p.platform) for p in shown}) <= 4, (name, axes.get_title(loc="left"))
            plt.close(figure)


def test_a_single_point_has_no_figure_on_the_page(make_result: Make, tmp_path: Path) -> None:
    one = timed(
        [0.1] * 7, metric="step_time", workload="resnet50", strategy="model parallel", ranks=1, devices=2, batch_size=8
    )
    figure_files.save(hybrid.plot([make_result([one], experiment="hybrid")]), tmp_path / "hybrid.html")
    assert (tmp_path / "hybrid.html").read_text() == ""


def test_efficiency_is_the_share_of_the_rate_of_one_device_without_ddp_that_a_rank_keeps(make_result: Make) -> None:
    """Which takes 0.09 s for a batch, 0.1 s with DDP; two ranks take 0.06 s for it, and 0.125 s for twice as much."""
    records = [
        timed([seconds] * 7, metric="step_time", workload="lenet", batch_size=size, scaling=scaling, devices=devices)
        for seconds, scaling, devices, size in (
            (0.09, "plain", 1, 64),
            (0.1, "strong", 1, 64),
            (0.06, "strong", 2, 64),
            (0.125, "weak", 2, 128),
        )
    ]
    figure = ddp.plot([make_result(records, experiment="ddp", spec={"models": ["lenet"], "accuracy_models": []})])
    found = {(s.point.series, s.point.x): s.point.value for s in points.of(figure) if s.unit == "share"}
    assert found == pytest.approx({("strong", 1): 0.9, ("strong", 2): 0.75, ("weak", 1): 0.9, ("weak", 2): 0.72})
    plt.close(figure)


def test_devices_compute_one_after_the_other_as_long_as_their_stages_take(make_result: Make) -> None:
    """Stages of 0.3 s and 0.6 s: forward 0.1 and 0.2, backward 0.4 and 0.2 in the reverse order."""
    resnet = {"workload": "resnet50", "batches": 1}
    cut = {**resnet, "devices": 2, "cut": "after layer2"}
    records = [
        timed([1.0] * 7, metric="step_time", **resnet, strategy="single device"),
        timed([1.0] * 7, metric="step_time", **cut, strategy="model parallel"),
        timed([0.3] * 7, metric="step_time", **cut, strategy="stage alone", stage=0),
        timed([0.6] * 7, metric="step_time", **cut, strategy="stage alone", stage=1),
    ]
    figure = model_parallel.plot([make_result(records, experiment="model_parallel", spec={"model": "resnet50"})])
    (lanes,) = [axes for axes in figure.axes if axes.get_title(loc="left") == "who computes when"]
    busy = [
        (round(patch.get_y() + 0.25), round(patch.get_x(), 3), round(patch.get_width(), 3))
        for patch in lanes.patches
        if patch.get_alpha() is None
    ]
    assert busy == [(0, 0, 0.1), (1, 0.1, 0.2), (1, 0.3, 0.4), (0, 0.7, 0.2)]
    assert {text.get_text() for text in lanes.texts} == {"idle 70 %", "idle 40 %"}
    plt.close(figure)


def test_a_pipeline_is_drawn_over_split_sizes_beside_the_bubble(make_result: Make) -> None:
    shared = {"batch_size": 8, "image_size": 8}
    records = [timed([1.0] * 7, metric="step_time", strategy="single device", **shared)]
    for size, seconds in ((8, 1.0), (4, 0.8), (1, 0.7)):
        records.append(
            timed(
                [seconds] * 7,
                metric="step_time",
                strategy="gpipe",
                split_size=size,
                **shared,
                devices=2,
                cut="after layer2",
            )
        )
    spec = {"model": "resnet50", "split_sizes": [1, 4, 8], "batch_size": 8}
    figure = pipeline.plot([make_result(records, experiment="pipeline", spec=spec)])
    assert {s.point.x: s.point.value for s in points.of(figure)} == pytest.approx({8: 1.0, 4: 0.8, 1: 0.7})
    (bound,) = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert list(bound.get_ydata()) == pytest.approx([9 / 16, 3 / 4, 1])  # type: ignore[arg-type]
    plt.close(figure)


def of_played_gpipe(*, rounds_id: str = "rounds") -> list[Record]:
    """Two micro-batches, whose forwards and backwards take 100 ms each on stage 0, and 300 ms on stage 1.

    So it is in the third round, which took as long as the median; in the others all took half or twice as long.
    """
    step = {"strategy": "gpipe", "split_size": 1, "batch_size": 2, "devices": 2, "cut": "balanced"}
    found = [timed([1.5] * 5, metric="step_time", **step), in_rounds(1.45, "played_time", **step)]
    for stage, seconds in enumerate((0.1, 0.3)):
        own = {"devices": 2, "cut": "balanced", "stage": stage}
        parts = {"forward": 2 * seconds, "forward and backward": 4 * seconds}
        found += [in_rounds(took, "stage_time", **own, split_size=1, part=part) for part, took in parts.items()]
        found.append(in_rounds(0.05, "stage_time", rounds_id=rounds_id, **own, part="update"))
    return found


def in_rounds(seconds: float, metric: str, *, rounds_id: str = "rounds", **case: object) -> Record:
    return timed([seconds * share for share in (0.5, 2, 1, 2, 0.5)], rounds_id=rounds_id, metric=metric, **case)


def test_every_micro_batch_has_its_place_on_each_device_beside_the_measured_step(make_result: Make) -> None:
    """Of 1.45 s stage 0 computes for 0.45 and stage 1 for 1.25; stage 0 waits for gradients of 1.0 s and 1.3 s."""
    spec = {"model": "resnet50", "split_sizes": [1, 2], "batch_size": 2}
    figure = pipeline.plot([make_result(of_played_gpipe(), experiment="pipeline", spec=spec)])
    (lanes,) = [axes for axes in figure.axes if axes.get_title(loc="left") == "who computes when"]
    busy = {
        (round(patch.get_y() + 0.25), round(patch.get_x(), 3)): (round(patch.get_width(), 3), patch.get_facecolor())
        for patch in lanes.patches
        if patch.get_alpha() is None
    }
    forward, backward, update = (to_rgba(style.colour(kind)) for kind in ("forward", "backward", "update"))
    assert busy == {
        **{(0, 0): (0.1, forward), (0, 0.1): (0.1, forward), (1, 0.1): (0.3, forward), (1, 0.4): (0.3, forward)},
        **{(1, 0.7): (0.3, backward), (1, 1.0): (0.3, backward), (0, 1.0): (0.1, backward), (0, 1.3): (0.1, backward)},
        **{(1, 1.3): (0.05, update), (0, 1.4): (0.05, update)},
    }
    said = [text.get_text() for text in lanes.texts]
    assert [text for text in said if not text.isdigit()] == ["measured 1.50 s", "idle 69 %", "idle 14 %"]
    assert sorted(filter(str.isdigit, said)) == ["0"] * 4 + ["1"] * 4
    (line,) = [line for line in lanes.lines if line.get_linestyle() == ":"]
    assert list(line.get_xdata()) == [1.5, 1.5]  # type: ignore[arg-type]
    plt.close(figure)


def test_without_every_stage_alone_in_the_same_rounds_nobody_is_said_to_compute(make_result: Make) -> None:
    spec = {"model": "resnet50", "split_sizes": [1, 2], "batch_size": 2}
    for records in (of_played_gpipe()[:-1], of_played_gpipe(rounds_id="others")):
        figure = pipeline.plot([make_result(records, experiment="pipeline", spec=spec)])
        assert [axes.get_title(loc="left") for axes in figure.axes] == [
            "ResNet-50 on 2 devices",
            "measured and simulated",
        ]
        plt.close(figure)


@pytest.mark.parametrize("heights", [[0.9, 0.89, 0.88], [0.02, 0.01, 0.0], [0.5, 0.1, 0.09, 0.0]])
def test_names_at_the_ends_of_lines_never_overlap(heights: list[float]) -> None:
    moved = layout.moved_apart(heights, 0.1)
    assert all(upper - lower >= 0.1 - 1e-9 for upper, lower in pairwise(moved))
    assert min(moved) >= 0


def test_names_that_have_room_stay_where_their_lines_end() -> None:
    assert layout.moved_apart([0.9, 0.5], 0.1) == [0.9, 0.5]


def test_panels_above_one_another_stay_together() -> None:
    figure, grid = plt.subplots(3, 1)
    for axes in grid:
        axes.plot([0, 1])
    layout.finish(figure)
    assert svg.as_html(figure, "trend").count("<svg") == 1
    plt.close(figure)


def test_a_path_keeps_its_numbers_apart() -> None:
    figure, axes = plt.subplots()
    axes.plot([0, 1])
    drawn = svg.as_html(figure, "trend")
    plt.close(figure)
    moves = re.findall(r"[ML][^A-Za-z]*", "".join(re.findall(r' d="([^"]*)"', drawn)))
    assert len(moves) > 20
    assert [move for move in moves if not re.fullmatch(r"[ML]-?[\d.]+ -?[\d.]+", move)] == []


def test_a_small_line_goes_up_to_the_speed_up_and_the_ideal_to_the_corner() -> None:
    """Four times on eight devices: half as high as the ideal."""
    drawn = sparkline([(1, 1.0), (8, 4.0)])
    ideal, line = re.findall(r'points="([^"]+)"', drawn)
    top, bottom = 3.0, 27.0
    assert ideal == f"3.0,{bottom} 93.0,{top}"
    assert line.split()[-1] == f"93.0,{(top + bottom) / 2}"


def accuracy(values: list[float], **case: object) -> Record:
    about = {"metric": "accuracy", "unit": "fraction", "samples": [values]}
    return Record(case={"data": "synthetic", **case}, **about)  # type: ignore[arg-type, dict-item]


def drawn(figure: Figure, title: str) -> dict[str, list[float]]:
    """The values of each line of a panel."""
    lines = dict[str, list[float]]()
    for shown in points.of(figure):
        if shown.axes.get_title(loc="left") == title:
            lines.setdefault(shown.point.series, []).append(shown.point.value)
    plt.close(figure)
    return lines


def test_the_accuracy_of_ddp_is_drawn_on_every_number_of_ranks_and_over_nodes_apart(make_result: Make) -> None:
    case = {"workload": "lenet", "batch_size": 16}
    records = [accuracy([0.1 * count, 0.2 * count], **case, devices=count) for count in (4, 1, 2)]
    records.append(accuracy([0.9, 0.9], **case, devices=8, nodes=2))
    result = make_result(
        records, experiment="ddp", spec={"models": ["lenet"], "accuracy_models": ["lenet", "resnet18"]}
    )
    lines = drawn(ddp.plot([result]), "LeNet: accuracy after each epoch")
    assert list(lines.items()) == [
        ("1 rank", pytest.approx([0.1, 0.2])),
        ("2 ranks", pytest.approx([0.2, 0.4])),
        ("4 ranks", pytest.approx([0.4, 0.8])),
    ]
    assert drawn(ddp.plot([result]), "LeNet: accuracy over 2 nodes") == {"8 ranks": [0.9, 0.9]}
    said = "LeNet: Test accuracy after 2 epochs is 0.200 on one rank and 0.800 on 4, on synthetic images"
    assert f"{said} (give or take 0.011)." in [finding.text for finding in ddp.findings(result)]


def test_on_one_device_all_settings_of_dp_concise_share_a_panel(make_result: Make) -> None:
    spec = {"model": "resnet18_eighth", "batch_sizes": [16, 32], "lrs": [0.1], "test_images": 500, "train_images": 1000}
    settings = [{"batch_size": size, "lr": 0.1} for size in (16, 32)]
    alone = [accuracy([0.5, 0.6], devices=1, **setting) for setting in settings]
    lines = drawn(dp_concise.plot([make_result(alone, experiment="dp_concise", spec=spec)]), "accuracy on one device")
    assert list(lines) == ["batch 16, lr 0.1", "batch 32, lr 0.1"]
    several = [accuracy([0.5, 0.6], devices=count, **settings[0]) for count in (1, 2, 4)]
    made = make_result(several, experiment="dp_concise", spec=spec)
    assert list(drawn(dp_concise.plot([made]), "batch 16, lr 0.1")) == ["1 device", "2 devices", "4 devices"]


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({1: 0.5, 2: 0.7, 4: 0.9}, "That is the smallest one"),
        ({1: 0.9, 2: 0.7, 4: 0.5}, "That is the largest one"),
        ({1: 0.9, 2: 0.5, 4: 0.7}, ""),
        ({2: 0.5}, ""),
    ],
)
def test_a_best_split_size_at_an_end_of_the_sweep_has_its_reason(
    make_result: Make, times: dict[int, float], said: str
) -> None:
    shared = {"workload": "resnet50", "batch_size": 8, "image_size": 8}
    whole = {**shared, "split_size": 8}
    records = [timed([1.0] * 7, metric="step_time", strategy=name, **whole) for name in pipeline.LINES]
    cut = {**shared, "strategy": "gpipe", "devices": 2, "cut": "after layer2"}
    for size, seconds in {**times, 8: 0.4}.items():
        records.append(timed([seconds] * 7, metric="step_time", split_size=size, **cut))
    result = make_result(records, experiment="pipeline", spec={"model": "resnet50", "batch_size": 8})
    first = pipeline.findings(result)[0].text
    assert said in first
    assert ("That is the" in first) == bool(said)


def test_an_axis_within_two_powers_of_ten_has_numbers_and_a_title_too_long_has_two_lines() -> None:
    figure, (axes, wide) = layout.panels(2)
    for panel, values in ((axes, [430, 880]), (wide, [4.3, 880])):
        panel.plot([1, 2], values)
        panel.set_yscale("log")
        charts.number_axis(panel.yaxis, "")
    axes.set_title("resnet18_eighth, SGD with momentum in float32, blocks recomputed")
    wide.set_title("resnet18_eighth, SGD with momentum in float32")
    layout.finish(figure)
    few, many = ([label.get_text() for label in panel.get_yticklabels() if label.get_text()] for panel in (axes, wide))
    assert {"600", "750"} <= set(few)
    assert {"10", "100"} <= set(many)
    assert axes.get_title(loc="left") == "resnet18_eighth, SGD with momentum in float32, blocks\nrecomputed"
    assert wide.get_title(loc="left") == "resnet18_eighth, SGD with momentum in float32"
    plt.close(figure)
