"""The kinds of chart that the sections draw, each with its spread, in the colours and markers of style.py."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from scalecard.report import style, units

MIDDLE_HALF = ("pi", 50)
MOST_INSIDE = 9  # entries of a legend that leave room for what they explain


def lines(data: pd.DataFrame, *, x: str, hue: str, axes: Axes) -> None:
    """Median lines with a band over the middle half of the samples; a dashed line for every further platform."""
    if data.empty:
        nothing(axes)
        return
    labels = list(dict.fromkeys(data[hue])) if len(data) else []
    sns.lineplot(
        data,
        x=x,
        y="value",
        hue=hue,
        style="platform" if _several(data) else hue,
        palette={label: style.colour(str(label)) for label in labels},
        estimator="median",
        errorbar=MIDDLE_HALF,
        markers=True,
        dashes=_several(data),
        ax=axes,
    )
    legend(axes)


def bars(data: pd.DataFrame, *, y: str, axes: Axes) -> None:
    """Horizontal bars of medians, a whisker over the middle half of the samples, one colour per platform."""
    if data.empty:
        nothing(axes)
        return
    sns.barplot(
        data,
        x="value",
        y=y,
        hue="platform",
        palette=_platforms(data),
        estimator="median",
        errorbar=MIDDLE_HALF,
        err_kws={"color": style.INK},
        ax=axes,
        legend=_several(data),
    )
    axes.locator_params(axis="x", nbins=4)  # times have long labels
    legend(axes)


def beside(data: pd.DataFrame, *, y: str, hue: str, axes: Axes) -> None:
    """Horizontal bars of medians side by side, a whisker over the middle half of the samples, one colour per `hue`."""
    if data.empty:
        nothing(axes)
        return
    palette = {label: style.colour(str(label)) for label in data[hue].unique()}
    bars = {"estimator": "median", "errorbar": MIDDLE_HALF, "err_kws": {"color": style.INK}}
    sns.barplot(data, x="value", y=y, hue=hue, palette=palette, ax=axes, **bars)
    axes.locator_params(axis="x", nbins=4)
    legend(axes)


def dots(data: pd.DataFrame, *, x: str, axes: Axes) -> None:
    """Every sample as a dot, the median as a line across."""
    if data.empty:
        nothing(axes)
        return
    options = {"data": data, "x": x, "y": "value", "hue": "platform", "palette": _platforms(data), "ax": axes}
    sns.stripplot(**options, dodge=_several(data), legend=_several(data), jitter=0.12, alpha=0.8)
    sns.pointplot(
        **options,
        dodge=0.4 if _several(data) else False,
        estimator="median",
        errorbar=None,
        linestyle="none",
        marker="_",
        markersize=22,
        legend=False,
    )
    legend(axes)


def accuracies(data: pd.DataFrame, *, hue: str, axes: Axes) -> None:
    """Test accuracy after each epoch."""
    shown = data.assign(epoch=data["index"] + 1, **{hue: data[hue].astype(str)})
    lines(shown, x="epoch", hue=hue, axes=axes)
    axes.set(xlabel="epoch", ylabel="test accuracy", title="accuracy after each epoch", ylim=(0, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    explained = axes.get_legend()
    if explained:
        explained.set_title(hue.replace("_", " "))


def intervals(rows: Sequence[tuple[str, str, float, float, float]], *, axes: Axes) -> None:
    """Ratios with their intervals, one per row: (label, platform, ratio, low, high); a dashed line marks 1."""
    platforms = list(dict.fromkeys(platform for _, platform, *_ in rows))
    labels = list(dict.fromkeys(label for label, *_ in rows))
    for label, platform, ratio, low, high in rows:
        place = labels.index(label) + 0.18 * platforms.index(platform)
        colour = style.colour(platform)
        axes.plot([low, high], [place, place], color=colour, linewidth=2)
        axes.plot(ratio, place, style.marker(platform), color=colour, label=platform)
    axes.axvline(1, color=style.INK, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    if len(platforms) > 1:
        legend(axes)


def ticks(axes: Axes, values: Sequence[float], *, every: int = 1) -> None:
    """Ticks of a logarithmic axis at the values measured (or at every second one), and nowhere else."""
    axes.set_xticks(list(values)[::every], [f"{value:g}" for value in values][::every])
    axes.set_xticks([], minor=True)


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with 20 and 30 instead of 2 x 10^1."""
    axis.set_major_formatter(ScalarFormatter())
    axis.set_minor_formatter(ScalarFormatter())


def byte_ticks(axes: Axes, values: Sequence[int]) -> None:
    """Ticks at every second size, in KiB and MiB."""
    axes.set_xticks(list(values)[::2], [units.count_bytes(value) for value in values][::2], rotation=30)
    axes.set_xticks([], minor=True)


def nothing(axes: Axes) -> None:
    """Say so, where there is nothing to draw."""
    axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=style.INK)


def legend(axes: Axes) -> None:
    """A frameless legend without repeated entries, if there is anything to explain; a long one is below the axes."""
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if not unique:
        return
    if len(unique) <= MOST_INSIDE:
        axes.legend(unique.values(), unique.keys(), frameon=False, fontsize="small")
        return
    inside = axes.get_legend()
    if inside:
        inside.remove()
    _legend_below(axes, unique)


def _legend_below(axes: Axes, entries: Mapping[str, Artist]) -> None:
    """Below the axes, on their side of the figure, which becomes as much higher."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    side, columns = ("right" if figure.axes.index(axes) else "left"), 1 if max(map(len, entries)) > 24 else 2
    for earlier in [legend for legend in figure.legends if legend.get_gid() == side]:
        earlier.remove()
    place: Any = f"outside lower {side}"
    below = figure.legend(
        list(entries.values()), list(entries), frameon=False, fontsize="x-small", loc=place, ncols=columns
    )
    below.set_gid(side)
    figure.set_figheight(max(figure.get_figheight(), style.HEIGHT + 0.17 * math.ceil(len(entries) / columns)))


def _several(data: pd.DataFrame) -> bool:
    return len(data) > 0 and data["platform"].nunique() > 1


def _platforms(data: pd.DataFrame) -> dict[str, str]:
    return {label: style.colour(str(label)) for label in (data["platform"].unique() if len(data) else [])}
