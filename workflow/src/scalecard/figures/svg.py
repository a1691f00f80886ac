"""A figure as the page shows it: each panel an SVG of its own, so that they stack on a phone.

Their text stays text, in the page's font. Each value that points.py knows says what it is: as a title, which browsers
show on hover, and which report.js shows to those who come by keyboard or by touch.
"""

import io
import re
import zlib
from collections.abc import Sequence
from html import escape

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from scalecard.figures import points, style

PAD = 0.06  # inches around a panel
SLIM = (
    (rf'<g id="(?!{points.MARK})[^"]*">', "<g>"),
    (r' transform="rotate\(-0[^"]*"', ""),
    (r"font-family: [^;]*; ", ""),
    (r"(\d\d\.\d)\d+", r"\1"),
    (r"\s*\n\s*", " "),
    *[(r"<g> (<use [^>]*>) </g>", r"\1")] * 2,  # a mark is in a group of a group
    (r"<g> (<text .*?</text>) </g>", r"\1"),
    (r"> <", "><"),
)
ID = re.compile(r'(\bid="|xlink:href="#|url\(#)([^")]+)')
DATA = re.compile(r' d="[^"]*"')
COMMAND = re.compile(r' ?([A-Za-z"]) ?')  # of a path, or its end: numbers need no space beside them
STYLE = re.compile(r'style="([^"-][^"]*)"')
POINT = re.compile(rf'<g id="{points.MARK}(\d+)">')
MISSING = '<p class="warning">This figure could not be drawn; its log says why.</p>'  # in its place, for the page
WIDTH, HEIGHT, EDGE = 96, 30, 3  # of a sparkline, in units of the viewBox


def as_html(figure: Figure, name: str) -> str:
    """A finished figure's panels, each as inline SVG unless they stand in one column; their ids begin with `name`."""
    shown = [axes for axes in figure.axes if axes.get_visible()]
    for text in filter(None, (figure._supxlabel, *figure.texts)):  # type: ignore[attr-defined]
        text.set_visible(False)  # the caption says it
    # In one column if all begin in the same third of the figure's width.
    columns = {int(3 * axes.get_position().x0) for axes in shown}
    parts = [shown] if len(columns) == 1 else [[axes] for axes in shown]
    made = "\n".join(_inline(figure, part, f"{name}-{index}") for index, part in enumerate(parts))
    for axes in shown:
        axes.set_visible(True)
    return made


def _inline(figure: Figure, part: list[Axes], prefix: str) -> str:
    """Without prologue, metadata and size, in the page's own ink; ids are the prefix and a number."""
    for axes in figure.axes:
        axes.set_visible(axes in part)
    box = Bbox.union([box for axes in part if (box := axes.get_tightbbox())]).padded(PAD * figure.dpi)
    inches = box.transformed(figure.dpi_scale_trans.inverted())
    content = io.StringIO()
    figure.savefig(content, format="svg", transparent=True, bbox_inches=inches)
    svg = re.sub(r"<metadata>.*?</metadata>", "", content.getvalue().partition("<svg")[2], flags=re.DOTALL)
    svg = re.sub(r' width="[^"]*"', f' style="--inches: {inches.width:.2f}"', svg, count=1)
    svg = re.sub(r' height="[^"]*"', "", svg, count=1)
    svg = _slim("<svg" + svg.replace(style.INK, "currentColor"))
    texts, ids = [escape(shown.text) for shown in points.of(figure)], dict[str, str]()
    svg = POINT.sub(lambda found: f'<g class="point"><title>{texts[int(found[1])]}</title>', svg)
    return ID.sub(lambda found: found[1] + ids.setdefault(found[2], f"{prefix}-{len(ids)}"), svg)


def _slim(svg: str) -> str:
    """A third as long: without what says nothing, and each style once. A tenth of a pixel is fine enough."""
    for pattern, instead in SLIM:
        svg = re.sub(pattern, instead, svg)
    svg = DATA.sub(lambda found: " " + COMMAND.sub(r"\1", found[0]), svg)
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return f'class="{names.setdefault(found[1], f"s{zlib.crc32(found[1].encode()):x}")}"'

    svg = STYLE.sub(named, svg)
    rules = "".join(f".{name}{{{style.replace(': ', ':').replace('; ', ';')}}}" for style, name in names.items())
    return svg.replace("</style>", f"{rules}</style>", 1)


def sparkline(points: Sequence[tuple[float, float]]) -> str:
    """An inline SVG of (devices, speed-up) pairs, from zero to the most devices; dotted is one times each device."""
    most = max(devices for devices, _ in points)

    def place(devices: float, speed_up: float) -> tuple[str, str]:
        x = EDGE + (WIDTH - 2 * EDGE) * devices / most
        return f"{x:.1f}", f"{HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * min(1.0, speed_up / most):.1f}"

    ideal, line = (" ".join(",".join(place(*point)) for point in ends) for ends in (((0, 0), (most, most)), points))
    end_x, end_y = place(*points[-1])
    return (
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<polyline class="ideal" points="{ideal}"/><polyline points="{line}"/>'
        f'<circle cx="{end_x}" cy="{end_y}" r="2.2"/></svg>'
    )
