"""Looks: the same colour and marker for a label in every figure, and the captions."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import matplotlib as mpl

from scalecard.analysis.platforms import device_name, platform_label
from scalecard.records.axes import MEMORY
from scalecard.records.record import Result
from scalecard.records.strategies import ALL

SMALLER = 8.8  # points; other text has 9.6
WIDTH, HEIGHT = 4.1, 3.0  # inches, of a panel; a phone shows it at about its own size
BESIDE = 5.0  # points, between a mark and its value
INK = "#1b1f23"  # text, axes and grid; svg.py makes it the page's own text colour in an SVG
# Okabe and Ito's palette, which colour-blind readers can tell apart, without its yellow.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8f6bd9", "#7f7f7f")
MARKERS = "osD^vPX*"
TOGETHER = (  # in one figure: the first has the first colour, and so on
    ("naive", "ring", "torch.distributed"),
    ("textbook", "gpipe", "1f1b"),
    ("serial", "concurrent"),
    ("measured", "simulated"),
    ("float32", "bfloat16", "tf32", "float16"),
    ("strong", "weak"),
    ("all-reduce", "all-gather", "all-to-all"),
    ("forward", "backward"),
    ("compute", "communication", "smaller batch", "bubble", "side by side", "slowest rank", "update", "the rest"),
    MEMORY,
)
FIXED = {
    **{strategy.name: strategy.colour for strategy in ALL},
    **{"": 0, "on those above": 0, "alone": 4, "ideal": 7},
    **{"recomputation": 0, "launching": 2, "uneven cut": 4, "input": 5},  # terms of a step that are not together
    **{label: place for group in TOGETHER for place, label in enumerate(group)},
}


class Look(NamedTuple):
    """How a line or a bar looks."""

    colour: str
    marker: str
    dash: str | tuple[int, tuple[int, ...]] = "-"


# Of platforms that nobody asked to see: dull, and told apart by hue, dash and marker, on light and dark pages.
DULL = (Look("#808080", "*", "--"), Look("#a5784a", "X", "-."), Look("#9a7fa8", "P", (0, (4, 1, 1, 1, 1, 1))))
_platforms: dict[str, Look] = {}

mpl.use("Agg")
mpl.rcParams.update(
    {
        "figure.figsize": (2 * WIDTH, HEIGHT),
        "font.sans-serif": ["Arial", "DejaVu Sans", "Liberation Sans"],
        "font.size": 9.6,
        "axes.titlesize": "medium",
        "axes.titlelocation": "left",
        "axes.labelsize": "medium",
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.alpha": 0.18,
        "grid.color": INK,
        "grid.linewidth": 1,
        "legend.fontsize": SMALLER,
        "legend.framealpha": 0,
        "lines.solid_capstyle": "round",
        "patch.edgecolor": "white",
        "patch.force_edgecolor": True,
        "text.hinting": "none",  # or text would be wider in one format than in another
        "svg.fonttype": "none",
        "pdf.fonttype": 42,  # TrueType, which publishers ask for
        "svg.hashsalt": "scalecard",
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), SMALLER),
        **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 1.25),
        **dict.fromkeys(("xtick.minor.width", "ytick.minor.width"), 1),
        **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 6),
        **dict.fromkeys(("xtick.minor.size", "ytick.minor.size"), 4),
    }
)


def colour(label: str) -> str:
    """The same label has the same colour in every figure of a report."""
    return _platforms[label].colour if label in _platforms else PALETTE[FIXED.get(label, 0)]


def marker(label: str) -> str:
    """The same label has the same marker too, so that nothing depends on colour alone."""
    return _platforms[label].marker if label in _platforms else MARKERS[FIXED.get(label, 0)]


def distinct(labels: Iterable[str]) -> dict[str, Look]:
    """A look for each label of a panel, in their order: its own if it has one, and no two alike while looks last."""
    every, taken = list(dict.fromkeys(labels)), dict[str, int]()
    for label in sorted(every, key=lambda label: label not in FIXED):
        free = [place for place in range(len(PALETTE)) if place not in taken.values()]
        own = FIXED.get(label)
        taken[label] = own if own in free else free[0] if free else len(taken) % len(PALETTE)
    return {label: _platforms.get(label) or Look(PALETTE[taken[label]], MARKERS[taken[label]]) for label in every}


def tell_platforms_apart(results: Sequence[Result], show: Sequence[str] | None) -> None:
    """From now on the first result's platform has the first colour, those of `show` the next ones, and others are dull.

    So this platform and those of `show` look the same in figures that are drawn apart, whoever else has measured what
    they show. Which dull look another one has may differ.
    """
    asked = [name for name in show or () if name != results[0].platform]
    rest = dict.fromkeys(r.platform for r in results[1:] if r.platform not in (results[0].platform, *asked))
    looks = {
        name: Look(PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)])
        for place, name in enumerate([results[0].platform, *asked])
    }
    looks |= {name: DULL[place % len(DULL)] for place, name in enumerate(rest)}
    _platforms.clear()
    _platforms.update({platform_label(result): looks[result.platform] for result in results})


def caption(results: Sequence[Result]) -> str:
    """Device, number of samples, and what stands in for a GPU."""
    said = []
    for result in results:
        counts = [r.num_samples for r in result.records if r.status == "ok"]
        few, many = min(counts, default=0), max(counts, default=0)
        samples = f"{few}" if few == many else f"{few} to {many}"
        where = f"{platform_label(result)}: {device_name(result)}, {samples} samples per case"
        said.append(where + ", emulated on CPU workers and ranks" * result.emulated)
    return "; ".join(said)
