"""Output of a command in one shape: lines for the terminal, JSON for programs, and JUnit's XML for a CI.

GitLab and Jenkins read JUnit's XML: a suite of test cases, each passed, failed or skipped.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from scalecard.records.strict_json import printable


@dataclass(frozen=True, kw_only=True)
class JUnitCase:
    """`failure` and `skipped` are one line, or '' if the case is neither; `details` may have several."""

    group: str
    name: str
    failure: str = ""
    skipped: str = ""
    details: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Output:
    """The same facts for three readers; a `suite` without cases has no XML. `measured` is an ISO 8601 moment, UTC."""

    lines: Sequence[str]
    fields: Mapping[str, Any]
    suite: str = ""
    cases: Sequence[JUnitCase] = ()
    measured: str = ""

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def json(self) -> str:
        """The fields; docs/nightly.md and docs/results.md describe them."""
        return json.dumps(self.fields, indent=1)

    @property
    def junit(self) -> str:
        counts = {
            "tests": str(len(self.cases)),
            "failures": str(sum(bool(case.failure) for case in self.cases)),
            "errors": "0",
            "skipped": str(sum(bool(case.skipped) for case in self.cases)),
            "time": "0",
        }
        root = ElementTree.Element("testsuites", {"name": "scalecard", **counts})
        # Jenkins' schema has local moments without a zone.
        own = {"name": _clean(self.suite), **counts, "timestamp": self.measured[:19]}
        suite = ElementTree.SubElement(root, "testsuite", own)
        for case in self.cases:
            _add(suite, case)
        ElementTree.indent(root)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _add(suite: ElementTree.Element, case: JUnitCase) -> None:
    own = {"classname": f"scalecard.{_clean(case.group)}", "name": _clean(case.name), "time": "0"}
    found, details = ElementTree.SubElement(suite, "testcase", own), "\n".join(map(_clean, case.details))
    if case.failure:
        failure = ElementTree.SubElement(found, "failure", {"message": _clean(case.failure), "type": "verdict"})
        failure.text = details or _clean(case.failure)
    elif case.skipped:
        ElementTree.SubElement(found, "skipped", {"message": _clean(case.skipped)})
    elif details:
        ElementTree.SubElement(found, "system-out").text = details


def _clean(text: str) -> str:
    """Without what XML cannot hold, however it is escaped."""
    return printable(text).replace("\ufffe", "").replace("\uffff", "")


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, with columns under their head; the last column may be of any width."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    return ["  ".join([*map(str.ljust, line, widths), line[-1]]).rstrip() for line in lines]
