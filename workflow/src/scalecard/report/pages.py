"""HTML pages from the templates in workflow/report, with style and script included: everything in one file."""

import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from scalecard.report import contents, units

TEMPLATES = Path(__file__).parents[3] / "report"


def render(template: str, **values: Any) -> str:
    """The page; every value is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"commands": _commands, "number": units.number, "label": contents.label}
    environment.globals["on_axis"] = units.on_axis
    return environment.get_template(template).render(**values)


def _commands(text: str) -> Markup:
    """A sentence for a terminal as HTML, with its `commands` in a font of their own."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
