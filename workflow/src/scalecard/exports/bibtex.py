"""BibTeX entries that cite a measurement, and ScaleCard itself."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from scalecard.analysis.provenance import commits, provenance
from scalecard.hardware.facts import ROOT
from scalecard.hardware.machine import from_facts
from scalecard.records.record import Result
from scalecard.report.table import latex, one_line

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def citation(results: Sequence[Result]) -> str:
    """Two entries: one platform's results, by fingerprint, commit and date, without an author; and ScaleCard."""
    measured = max(result.finished for result in results)
    fingerprint = results[0].environment["fingerprint"]
    devices = "emulated devices on " if any(result.emulated for result in results) else ""
    fields = {
        "title": f"Parallel training measured on {devices}{from_facts(results[0].environment['machine']).describe()}",
        "year": measured[:4],
        "month": measured[5:7],
        "howpublished": "Results of ScaleCard",
        "note": f"Platform fingerprint {fingerprint}; {provenance(results)}",
    }
    of_results = _entry("misc", f"scalecard-{results[0].platform}", fields)
    about: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    version = f"commit {', '.join(commits(results))}"
    fields = {"title": about["title"], "version": version, "license": about["license"]}
    of_scalecard = _entry("software", "scalecard", fields, " and ".join(map(_author, about["authors"])))
    return f"% Who measured is not recorded: add an author.\n{of_results}\n{of_scalecard}"


def _author(author: Mapping[str, str]) -> str:
    """A name that BibTeX keeps together, or one of a person."""
    if "name" in author:
        return f"{{{latex(author['name'])}}}"
    return latex(f"{author['family-names']}, {author['given-names']}")


def _entry(kind: str, key: str, fields: Mapping[str, str], authors: str = "") -> str:
    """Titles are in a second pair of braces, in which styles keep capitals."""
    shown = {"author": f"{{{authors}}}"} if authors else {}
    for name, value in fields.items():
        text = f"{{{latex(value)}}}"
        shown[name] = MONTHS[int(value) - 1] if name == "month" else f"{{{text}}}" if name == "title" else text
    lines = "".join(f"  {name:<12} = {value},\n" for name, value in shown.items())
    return f"@{kind}{{{re.sub('[^A-Za-z0-9-]+', '-', one_line(key))},\n{lines}}}\n"
