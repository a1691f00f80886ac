"""What the report shows of docs/: the textbook's items beside each section, the ways to split, and the glossary.

It is in the page rather than linked, because a report lies anywhere.
"""

import functools
import re
from typing import NamedTuple

from scalecard.hardware.facts import ROOT

ITEMS, GLOSSARY = ROOT / "docs" / "textbook.md", ROOT / "docs" / "glossary.md"
ROW = re.compile(r"^\| \d+ \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
ENTRY = re.compile(r"^\*\*([^*]+)\.\*\* (.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
# By the section in which a student meets them: pictures in workflow/report, and the glossary's word for each.
PICTURES = {
    "dp_scratch": {"replicas.svg": "Data parallelism", "replicas_step.svg": "All-reduce"},
    "model_parallel": {"stages.svg": "Model parallelism"},
    "tensor_parallel": {"divided_layers.svg": "Tensor parallelism"},
}


class Item(NamedTuple):
    """Something in a text, and what became of it here."""

    text: str
    here: str


class Picture(NamedTuple):
    """A template with inline SVG, and what it shows."""

    file: str
    term: str
    definition: str


def items(experiment: str) -> list[Item]:
    """The rows of docs/textbook.md that belong to an experiment's section, links as their text."""
    rows = ROW.findall(LINK.sub(r"\1", ITEMS.read_text("utf-8")))
    return [Item(text, here) for text, here, at in rows if experiment in CODE.findall(at)]


def pictures(experiment: str) -> list[Picture]:
    """The ways to split that an experiment's section explains."""
    return [Picture(file, term, glossary()[term]) for file, term in PICTURES.get(experiment, {}).items()]


@functools.cache
def glossary() -> dict[str, str]:
    """What each word of docs/glossary.md means, in its order."""
    return {term: " ".join(meaning.split()) for term, meaning in ENTRY.findall(GLOSSARY.read_text("utf-8"))}
