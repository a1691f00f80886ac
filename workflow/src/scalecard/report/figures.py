"""Figures as files: SVG in the page's own text colour, PNG on white; each written whole or not at all."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from scalecard.records.atomic import write_atomically
from scalecard.records.files import load
from scalecard.report import sections, style


def draw(name: str, results: Sequence[Path], outputs: Sequence[Path]) -> None:
    """Draw an experiment's figure from its result files, the current platform's first, and save it."""
    figure = sections.load(name).plot([load(path) for path in results])
    for path in outputs:
        save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write .svg (transparent, its ink the text colour of the page around it) or .png (on white)."""
    plt.close(figure)  # otherwise pyplot keeps every figure
    content = io.BytesIO()
    if path.suffix == ".svg":
        figure.savefig(content, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        write_atomically(path, content.getvalue().replace(style.INK.encode(), b"currentColor"))
    else:
        figure.savefig(content, format=path.suffix[1:], dpi=160, facecolor="white", metadata={"Software": None})
        write_atomically(path, content.getvalue())
