"""Figures as files: SVG in the page's own text colour, PNG and PDF on white; each written whole or not at all."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from scalecard.records.atomic import write_atomically
from scalecard.records.record import Result
from scalecard.report import answers, sections, style
from scalecard.report.answers import NO_SETTINGS, Settings
from scalecard.report.drawn import drawn
from scalecard.report.gather import UNFIT, LeftOut, each_fit, gather

UNDATED = {  # the same picture has the same bytes whenever it is drawn
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def draw(
    name: str,
    results: Sequence[Path],
    outputs: Sequence[Path],
    show: Sequence[str] | None = None,
    settings: Settings = NO_SETTINGS,
) -> list[LeftOut]:
    """Draw an experiment's or an answer's figure from result files, the current platform's first, and save it.

    Of more than six platforms those of `show` are drawn. `settings` are those of answers. Returns the files that could
    not be used.
    """
    found = gather(results)
    platforms = drawn(found.results, show)
    chosen = sorted((r for r in found.results if r.platform in platforms), key=lambda r: platforms.index(r.platform))
    style.tell_platforms_apart(chosen, show)

    def drawn_of(subset: Sequence[Result]) -> dict[Path, bytes]:
        figure = _figure(name, subset, settings)
        return {path: picture(figure, path.suffix) for path in outputs}

    try:
        pictures, unfit = drawn_of(chosen), list[LeftOut]()
    except UNFIT:  # one of them lacks what the figure needs: the current one, which is an error, or another
        fitting, unfit = each_fit(chosen, lambda result: (drawn_of([result]), result)[1], here=platforms[0])
        pictures = drawn_of(fitting)
    for path, content in pictures.items():
        write_atomically(path, content)
    return [*found.left_out, *unfit]


def _figure(name: str, results: Sequence[Result], settings: Settings) -> Figure:
    if name in answers.names():
        answer: Figure = answers.load(name).plot(answers.measured(results, settings))
        return answer
    section: Figure = sections.load(name).plot(results)
    return section


def save(figure: Figure, path: Path) -> None:
    """Write the figure as .svg or .png."""
    write_atomically(path, picture(figure, path.suffix))


def picture(figure: Figure, suffix: str) -> bytes:
    """An .svg (transparent, its ink the text colour of the page around it), or a .png or .pdf (on white)."""
    plt.close(figure)  # otherwise pyplot keeps every figure
    content = io.BytesIO()
    if suffix == ".svg":
        figure.savefig(content, format="svg", transparent=True, metadata=UNDATED[suffix])
        return content.getvalue().replace(style.INK.encode(), b"currentColor")
    figure.savefig(content, format=suffix[1:], dpi=160, facecolor="white", metadata=UNDATED[suffix])
    return content.getvalue()
