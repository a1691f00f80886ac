"""HTML pages in one file, from the templates in workflow/report."""

import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from scalecard.analysis import formatting
from scalecard.report import changes_text, toc

UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµn]?s|min|h|[kKMGT]?i?B(?:/s)?|[kMGTP]?FLOP(?:/s)?|[MG]Hz|W|J|°C)(?!\w))")
TEMPLATES = Path(__file__).parents[3] / "report"
MISSING = b"This file could not be written; the log of the exports says why.\n"  # in the place of an export


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
