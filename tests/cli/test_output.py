"""What commands print: lines, JSON, and JUnit's XML, well-formed whatever the text, with counts that add up."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from scalecard.cli.output import JUnitCase, Output, aligned

MOMENT = "2026-01-02T03:04:05.678+00:00"
NASTY = 'a <b> & "c" ]]> \x00\x1b[31m \ufffe ü'


@pytest.mark.parametrize(
    ("module", "large"),
    [("compare_output", {"matplotlib", "torch"}), ("health_gate", {"matplotlib", "pandas", "torch"})],
)
def test_what_only_prints_loads_nothing_that_draws_or_measures(module: str, large: set[str]) -> None:
    """Importing these takes seconds."""
    started = f"import sys, scalecard.cli.{module} as _; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", started], text=True).split()
    assert f"scalecard.cli.{module}" in loaded
    assert large.isdisjoint(loaded)


def test_counts_and_text_survive_what_xml_cannot_hold() -> None:
    cases = [
        JUnitCase(group="ddp", name=NASTY, failure=NASTY, details=["one", NASTY]),
        JUnitCase(group="ddp", name="skipped", skipped="not compared"),
        JUnitCase(group="ddp", name="told", details=["1.00"]),
        JUnitCase(group="ddp", name="quiet"),
        JUnitCase(group="ddp", name="short", failure="slower"),
    ]
    document = Output(lines=[], fields={}, suite=NASTY, cases=cases, measured=MOMENT).junit
    assert document.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites ')
    root = ElementTree.fromstring(document.encode())
    (suite,) = root
    for each in (root, suite):
        counts = {key: each.get(key) for key in ("tests", "failures", "errors", "skipped")}
        assert counts == {"tests": "5", "failures": "2", "errors": "0", "skipped": "1"}
    assert suite.get("timestamp") == "2026-01-02T03:04:05"
    assert [case.get("classname") for case in suite] == ["scalecard.ddp"] * 5
    assert [[child.tag for child in case] for case in suite] == [
        ["failure"],
        ["skipped"],
        ["system-out"],
        [],
        ["failure"],
    ]
    assert [case.get("time") for case in suite] == ["0"] * 5
    failure = suite[0][0]
    assert failure.get("message") == 'a <b> & "c" ]]> \\x00\\x1b[31m  ü'
    assert str(failure.text).splitlines()[0] == "one"
    assert suite[4][0].text == "slower"


def test_lines_and_fields_are_the_same_facts_for_people_and_programs() -> None:
    told = Output(lines=["1 alert", "  low"], fields={"alerts": [{"verdict": "low"}]})
    assert told.text == "1 alert\n  low"
    assert json.loads(told.json) == {"alerts": [{"verdict": "low"}]}


def test_columns_are_as_wide_as_their_widest_cell_and_the_last_one_ends_where_it_ends() -> None:
    assert aligned(["case", "time"], [["a long case", "1 s"], ["b", ""]]) == [
        "case         time",
        "a long case  1 s",
        "b",
    ]
