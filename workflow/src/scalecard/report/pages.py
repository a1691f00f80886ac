"""HTML pages in one file, from the templates in workflow/report; and the downloads that the first screen offers."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from scalecard.analysis import formatting
from scalecard.report import changes_text, toc

UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµn]?s|min|h|[kKMGT]?i?B(?:/s)?|[kMGTP]?FLOP(?:/s)?|[MG]Hz|W|J|°C)(?!\w))")
TEMPLATES = Path(__file__).parents[3] / "report"


def render(template: str, **values: Any) -> str:
    """The page; every value is escaped."""
    return environment().get_template(template).render(**values)


def environment() -> jinja2.Environment:
    """What the templates need: numbers and commands for readers, and spaces before units that do not break."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: unbroken(value) if type(value) is str else value,
    )
    made.filters |= {"commands": _commands, "number": formatting.number, "label": toc.label}
    made.filters |= {"percent": formatting.percent, "change": formatting.change, "outcome": changes_text.outcome}
    made.globals["setting"] = formatting.setting
    return made


def _commands(text: str) -> Markup:
    """A sentence for a terminal as HTML, with its `commands` in a font of their own."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(unbroken(text)))))


def unbroken(text: str) -> str:
    """With spaces before units at which no line breaks."""
    return UNIT.sub("\u00a0", text)


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
    return [
        Take(name, label, link(path, report), path.read_text("utf-8") if name in COPIED else "")
        for name, label in LABELS.items()
        for path in exports
        if path.name == name
    ]


def link(path: Path, report: Path) -> str:
    """From the report to a file beside it."""
    return Path(os.path.relpath(path, report.parent)).as_posix()
