"""Tables as CSV, Markdown and LaTeX; every name is escaped, because users choose names."""

import csv
import io
import re
from collections.abc import Mapping, Sequence

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


def as_latex(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int, caption: str, label: str
) -> str:  # fmt: skip
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
