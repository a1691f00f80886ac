"""BibTeX of a measurement and of ScaleCard: what it names, and that BibTeX can read it."""

import re
from collections.abc import Callable
from dataclasses import replace

import yaml
from scalecard import __version__
from scalecard.analysis.provenance import provenance
from scalecard.exports.metadata import citation
from scalecard.records.record import Result
from support.exported import results, text
from support.projects import ROOT


def fields(written: str, kind: str) -> dict[str, str]:
    """Of the entry of this kind: one field per line."""
    (body,) = re.findall(rf"@{kind}\{{[A-Za-z0-9-]+,\n(.*?)^\}}", written, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r"^  (\w+) += (.*),$", body, re.MULTILINE))


def test_the_measurement_has_machine_date_fingerprint_and_commit() -> None:
    environment = results(8)[0].environment
    found = fields(text("citation.bib", 8), "misc")
    assert found["title"].startswith("{{Parallel training measured on 8 x NVIDIA A100-SXM4-40GB, driver 580.1;")
    assert (found["year"], found["month"]) == ("{2026}", "jan")
    assert environment["fingerprint"] in found["note"]
    assert environment["commit"][:12] in found["note"]
    assert provenance(results(8)) in found["note"]
    assert "author" not in found, "no names are recorded"


def test_emulated_devices_are_called_so() -> None:
    found = fields(text("citation.bib"), "misc")
    assert found["title"].startswith("{{Parallel training measured on emulated devices on CPU box8")
    assert "say nothing about GPUs" in found["note"]


def test_scalecard_is_cited_as_its_own_file_says() -> None:
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    found = fields(text("citation.bib"), "software")
    assert found["title"] == f"{{{{{about['title']}}}}}"
    assert found["author"] == f"{{{{{about['authors'][0]['name']}}}}}"
    assert results()[0].environment["commit"][:12] in found["version"]
    assert found["version"].startswith(f"{{{__version__}, ")
    assert found.get("url", "").strip("{}") == about.get("repository-code", "")


def test_odd_names_keep_braces_balanced_and_keys_plain(make_result: Callable[..., Result]) -> None:
    result = make_result([], platform="a_b c,{%")
    machine = {**result.environment["machine"], "cpu": "50% {of} \\a_cpu #1 & ~^"}
    written = citation([replace(result, environment={**result.environment, "machine": machine})])
    assert "@misc{scalecard-a-b-c-,\n" in written
    assert r"50\% \{of\} \textbackslash{}a\_cpu \#1 \& \textasciitilde{}\textasciicircum{}" in written
    bare = re.sub(r"\\[{}]", "", written)
    assert bare.count("{") == bare.count("}")
