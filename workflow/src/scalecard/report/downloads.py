"""Downloads that the first screen offers: summary and citation, to be copied, and the table of all cases."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LABELS = {"summary.md": "Copy summary", "citation.bib": "Cite", "results.csv": "CSV"}
COPIED = ("summary.md", "citation.bib")
MISSING = b"This file could not be written; the log of the exports says why.\n"  # in its place


@dataclass(frozen=True)
class Take:
    """A file beside the report, and its text if it is there to be copied."""

    name: str
    label: str
    link: str
    text: str


def takes(exports: Sequence[Path], report: Path) -> list[Take]:
    """Those of the exported files that the first screen has; links are relative to the report's folder."""
    by_name = {path.name: path for path in exports}
    return [_take(by_name[name], label, report) for name, label in LABELS.items() if name in by_name]


def _take(path: Path, label: str, report: Path) -> Take:
    text = path.read_text("utf-8") if path.name in COPIED else ""
    return Take(path.name, label, link(path, report), text)


def link(path: Path, report: Path) -> str:
    """From the report to a file beside it."""
    return Path(os.path.relpath(path, report.parent)).as_posix()
