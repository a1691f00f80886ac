"""HTML pages from the templates in workflow/report, with style and script included: everything in one file."""

from pathlib import Path
from typing import Any

import jinja2

TEMPLATES = Path(__file__).parents[3] / "report"


def render(template: str, **values: Any) -> str:
    """The page; every value is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(**values)
