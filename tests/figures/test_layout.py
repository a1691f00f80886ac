"""Every figure of every made-up platform can be read: on the page, in files, and in a column of a paper."""

import matplotlib.pyplot as plt
import pytest
from fixtures import platforms
from matplotlib.figure import Figure
from scalecard.analysis import platforms as measured
from scalecard.figures import layout, points, style
from scalecard.records.record import Result
from scalecard.report import answers, figure_files, sections
from support.blocks import CONFIG
from support.texts import faults

SETTINGS = {"forecast": CONFIG["forecast"]}
# Together they are the most platforms that are drawn beside one another, and have the longest names.
FOUR = ("fixture-8xh100", "fixture-8xh100-driver575", "fixture-4xa100", "fixture-2xrtx4090")
SHOWN = [pytest.param((name,), marks=pytest.mark.workflow) for name in platforms.PLATFORMS] + [pytest.param(FOUR)]


def drawn(name: str, results: list[Result]) -> Figure:
    here: str = results[0].platform
    figure: Figure
    if name in answers.names():
        figure = answers.load(name).plot(measured.current([r for r in results if r.platform == here], SETTINGS))
    else:
        own = [result for result in results if result.experiment == name]
        style.tell_platforms_apart(own, None)
        figure = sections.load(name).plot(own)
    return figure


@pytest.mark.parametrize("shown", SHOWN)
def test_no_text_is_cut_off_or_over_another_or_small(shown: tuple[str, ...]) -> None:
    results, found = [result for name in shown for result in platforms.results(name)], list[str]()
    for name in (*sections.names(), *answers.names()):
        figure = drawn(name, results)
        layout.finish(figure, figure_files.origins(results))
        found += [f"{name}: {fault}" for fault in faults(figure)]
        layout.finish(figure, column=figure_files.COLUMN_INCHES)
        found += [f"{name} in a column: {fault}" for fault in faults(figure)]
        plt.close(figure)
    assert found == []


def test_no_two_lines_of_a_panel_look_alike() -> None:
    results = [result for name in FOUR for result in platforms.results(name)]
    for own in (results, [result for result in results if result.platform == FOUR[0]]):
        for name in sections.names():
            figure = drawn(name, own)
            for axes in figure.axes:
                names = {(s.point.series, s.point.platform) for s in points.of(figure) if s.axes is axes}
                lines = {(line.get_color(), line.get_marker()) for line in axes.lines if line.get_gid()}
                assert not lines or len(lines) >= len(names), (name, axes.get_title(loc="left"))
            plt.close(figure)


def test_this_platform_lies_above_the_others() -> None:
    results = [result for name in FOUR for result in platforms.results(name)]
    axes = drawn("ddp", results).axes[0]
    marks = [line for line in axes.lines if line.get_gid()]
    highest = max(marks, key=lambda line: line.get_zorder())
    assert highest.get_color() == style.PALETTE[0]
    assert all(line.get_zorder() < highest.get_zorder() for line in marks if line.get_color() != style.PALETTE[0])
    plt.close("all")


def test_a_value_moves_aside_where_a_mark_would_cross_it() -> None:
    figure, (axes,) = layout.panels(1)
    axes.barh([0], [1.0])
    axes.set_xlim(0, 2)
    value = axes.annotate("1.00 ms", (1, 0), (style.BESIDE, 0), textcoords="offset points")
    layout.panel_of(axes).values.append(value)
    layout.panel_of(axes).marks.append(1.1)
    layout.finish(figure)
    assert value.get_window_extent().x0 > axes.transData.transform((1.1, 0))[0]
    plt.close(figure)
