"""The tables of the page, all of one shape: a head, and rows of cells that can be sorted; and as CSV or LaTeX."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import pandas as pd

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{mark: rf"\{mark}" for mark in "&%$#_{}"},
}
MARKDOWN = re.compile(r"([\\`*_\[\]<>|#&~$])")


@dataclass(frozen=True)
class Cell:
    """A text, the number to sort it by if it stands for one, remarks to show below it, and what it links to, if any."""

    text: str
    sort: float | None = None
    remarks: Sequence[str] = ()
    link: str = ""


EMPTY = Cell("")


@dataclass(frozen=True)
class Table:
    """Each row has a cell for each name in the head.

    A `trial` shows a method on numbers that say nothing about real devices: the page greys it.
    """

    label: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    trial: bool = False

    @classmethod
    def of(cls, label: str, rows: Sequence[Mapping[str, str | Cell]], note: str = "") -> "Table":
        """The table of rows by column; what a row lacks is empty, and text alone is sorted as text."""
        head = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[row.get(name, EMPTY) for name in head] for row in rows]
        return cls(label, head, [[Cell(one) if isinstance(one, str) else one for one in row] for row in cells], note)

    @property
    def texts(self) -> list[list[str]]:
        """The rows without what they are sorted by."""
        return [[cell.text for cell in row] for row in self.rows]

    def filled(self) -> "Table":
        """Leave out the columns that are empty in every row: a CPU has no peak, say."""
        shown = [any(row[place].text for row in self.rows) for place in range(len(self.head))]
        return replace(self, head=[*compress(self.head, shown)], rows=[[*compress(row, shown)] for row in self.rows])

    def explained(self, meanings: Mapping[str, str]) -> "Table":
        """Say in the note what the columns mean that are shown."""
        said = [f"{name}: {meanings[name]}." for name in self.head if name in meanings]
        return replace(self, note=" ".join(said))


def as_csv(rows: Sequence[Mapping[str, object]], notes: Sequence[str]) -> str:
    """A header and the rows, after the notes as comments: one per line, after a '#'."""
    text = io.StringIO()
    text.writelines(f"# {one_line(note)}\n" for note in notes)
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """Numbers with six digits; text on one line, quoted if a reader would take it for a comment."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return one_line(value) if isinstance(value, str) else value


def as_markdown(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    """A table in GitHub's flavour, whose first `left` columns are aligned to the left, and the others to the right."""
    lines = [head, [":--" if place < left else "--:" for place in range(len(head))], *rows]
    marks = [[cell if index == 1 else markdown(cell) for cell in line] for index, line in enumerate(lines)]
    return "".join(f"| {' | '.join(line)} |\n" for line in marks)


def as_latex(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int, caption: str, label: str) -> str:
    """A table for the package booktabs, with the same alignment."""
    cells = pd.DataFrame([map(latex, row) for row in rows], columns=list(map(latex, head)))
    table = cells.style.hide(axis="index").to_latex(
        column_format=f"@{{}}{'l' * left}{'r' * (len(head) - left)}@{{}}",
        position_float="centering",
        hrules=True,
        caption=latex(caption),
        label=f"tab:{re.sub('[^A-Za-z0-9]+', '-', label)}",
    )
    return table.replace(r"\centering", r"\centering\small", 1)


def latex(text: str) -> str:
    """The text as it stands, whatever it contains."""
    return "".join(LATEX.get(mark, mark) for mark in one_line(text))


def markdown(text: str) -> str:
    """The text as it stands, whatever it contains."""
    return MARKDOWN.sub(r"\\\1", one_line(text))


def one_line(text: object) -> str:
    """Without what ends a line or cannot be printed."""
    return " ".join("".join(mark if mark.isprintable() else " " for mark in str(text)).split())
