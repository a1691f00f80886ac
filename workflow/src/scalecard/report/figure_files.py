"""Figures as files: SVG, PNG and PDF, what they show as CSV, and their panels for the page; whole or not at all."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from scalecard.analysis import platforms, provenance
from scalecard.analysis.platforms import NO_SETTINGS, UNFIT, LeftOut, Settings, attempt, each_fit, gather
from scalecard.figures import layout, points, style, svg
from scalecard.hardware.machine import from_facts
from scalecard.records.atomic import write_atomically
from scalecard.records.record import Result
from scalecard.report import answers, sections, table, toc

COLUMN = [".column", ".pdf"]  # suffixes
COLUMN_INCHES = 240 / 72  # a column of a paper


def draw(
    name: str,
    results: Sequence[Path],
    outputs: Sequence[Path],
    show: Sequence[str] | None = None,
    settings: Settings = NO_SETTINGS,
) -> list[LeftOut]:
    """Draw an experiment's or an answer's figure from result files, the current platform's first, and save it.

    Of more than four platforms those of `show` are drawn. `settings` are those of answers. Returns what was left
    out: files of other platforms and, if it could not be drawn, the figure itself, whose files then say so.
    """
    found = gather(results)
    names = platforms.selection(found.results, show)
    chosen = sorted((r for r in found.results if r.platform in names), key=lambda r: names.index(r.platform))
    style.tell_platforms_apart(chosen, show)

    module = answers.load(name) if name in answers.names() else sections.load(name)
    title, _ = toc.docstring(module)

    def drawn_of(subset: Sequence[Result]) -> dict[Path, bytes]:
        figure = module.plot(platforms.current(subset, settings) if name in answers.names() else subset)
        return pictures(figure, outputs, title, origins(subset))

    left_out = found.left_out
    try:
        made: dict[Path, bytes] | None = drawn_of(chosen)
    except UNFIT:  # a result of another platform may lack what the figure needs
        others = [result for result in chosen if result.platform != names[0]] if name in sections.names() else []
        fitting, unfit = each_fit(others, lambda result: (drawn_of([result]), result)[1], here=names[0])
        ours = [result for result in chosen if result.platform == names[0]]
        left_out += unfit
        made = attempt(f"figure of {name}", partial(drawn_of, [*ours, *fitting]), left_out)
    for path, content in (made or _missing(title, left_out[-1].reason, outputs)).items():
        write_atomically(path, content)
    return left_out


def _missing(title: str, reason: str, outputs: Sequence[Path]) -> dict[Path, bytes]:
    figure = plt.figure(figsize=(8, 1))
    figure.text(
        0.5, 0.5, f"This figure could not be drawn: {reason}", ha="center", va="center", wrap=True, parse_math=False
    )
    made = pictures(figure, outputs, title, [])
    return made | {path: svg.MISSING.encode() for path in outputs if path.suffix == ".html"}


def origins(results: Sequence[Result]) -> list[str]:
    """Where a figure's numbers are from, a line for each platform: machine, commit and day."""
    said = []
    for label, platform in {platforms.platform_label(result): result.platform for result in results}.items():
        own = [result for result in results if result.platform == platform]
        machine, commits = from_facts(own[0].environment["machine"]).describe(), ", ".join(provenance.commits(own))
        said.append(f"{label}: {machine}; ScaleCard, commit {commits}; {provenance.days(own)}")
    return said


def save(figure: Figure, path: Path, title: str = "", footer: Sequence[str] = ()) -> None:
    """Write the figure in the format of the file's suffix."""
    for each, content in pictures(figure, [path], title, footer).items():
        write_atomically(each, content)


def pictures(figure: Figure, outputs: Sequence[Path], title: str, footer: Sequence[str]) -> dict[Path, bytes]:
    """The figure in the format of each suffix: .svg, .png, .pdf, .csv (what it shows), .html (panels for the page).

    A path with the suffixes of COLUMN is of a PDF with a page for each panel.

    The footer stands below the figure and in the file's own metadata.
    """
    plt.close(figure)
    layout.finish(figure, footer)
    pages = [path for path in outputs if path.suffixes == COLUMN]
    whole = [path for path in outputs if path.suffix in METADATA and path not in pages]
    content = {path: picture(figure, path.suffix, title, footer) for path in whole}
    for path in outputs:
        if path.suffix == ".csv":
            content[path] = table.as_csv(points.rows(figure), [title, *footer]).encode()
        elif path.suffix == ".html":  # after the others, because it takes the figure apart
            content[path] = svg.as_html(figure, path.stem).encode()
    for path in pages:
        content[path] = _panels(figure, title, footer)
    return content


def _panels(figure: Figure, title: str, footer: Sequence[str]) -> bytes:
    """A PDF with a page for each panel, as wide as a column of a paper."""
    content, metadata = io.BytesIO(), METADATA[".pdf"](title, "; ".join(footer))
    boxes = layout.finish(figure, column=COLUMN_INCHES)
    with PdfPages(content, metadata=metadata) as pages:
        for place, box in enumerate(boxes):
            for other, axes in enumerate(figure.axes):
                axes.set_visible(other == place)
            pages.savefig(figure, facecolor="white", bbox_inches=box)
    return content.getvalue()


def picture(figure: Figure, suffix: str, title: str, footer: Sequence[str]) -> bytes:
    """The figure as it stands, on white, with title and footer in the file's metadata."""
    plt.close(figure)  # otherwise pyplot keeps every figure
    content = io.BytesIO()
    figure.savefig(
        content, format=suffix[1:], facecolor="white", dpi=160, metadata=METADATA[suffix](title, "; ".join(footer))
    )
    return content.getvalue()


# The same picture has the same bytes whenever it is drawn, so no file has the time of drawing.
METADATA: dict[str, Callable[[str, str], dict[str, str | None]]] = {
    ".svg": lambda title, footer: {"Date": None, "Creator": "ScaleCard", "Title": title, "Description": footer},
    ".png": lambda title, footer: {"Software": "ScaleCard", "Title": title, "Description": footer},
    ".pdf": lambda title, footer: {
        "CreationDate": None,
        "Producer": None,
        "Creator": "ScaleCard",
        "Title": title,
        "Subject": footer,
    },
}
