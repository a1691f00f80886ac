"""What is wrong with the text of a figure, as Matplotlib measures it: cut off, over other text, or too small."""

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SMALLEST = 6.0  # points
TOUCH = 1.5  # pixels: rounding


def faults(figure: Figure) -> list[str]:
    """One line for each fault of a finished figure; none if all can be read."""
    shown, page = _extents(figure), figure.bbox.padded(TOUCH)
    outside = (text for text, box in shown if not (page.contains(*box.min) and page.contains(*box.max)))
    found = [f"{text.get_text()!r} is cut off" for text in outside]
    found += [f"{text.get_text()!r} is small" for text, _ in shown if float(text.get_fontsize()) < SMALLEST]
    pairs = (pair for pair in combinations(shown, 2) if pair[0][1].padded(-TOUCH).overlaps(pair[1][1]))
    return [*found, *(f"{one.get_text()!r} is over {other.get_text()!r}" for (one, _), (other, _) in pairs)]


def _extents(figure: Figure) -> list[tuple[Text, Bbox]]:
    """Of an annotation without its arrow. Matplotlib keeps labels of ticks beyond the axes, and does not draw them."""
    renderer, beyond = FigureCanvasAgg(figure).get_renderer(), set[Text]()  # type: ignore[no-untyped-call]
    figure.draw_without_rendering()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high:
                beyond |= {tick.label1, tick.label2}
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text not in beyond]
    seen = [text for text in texts if text.get_visible() and text.get_text().strip()]
    return [(text, Text.get_window_extent(text, renderer)) for text in seen]
