"""JUnit's XML, as GitLab and Jenkins read it: one suite of test cases, each passed, failed or skipped."""

from collections.abc import Sequence
from dataclasses import dataclass
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


def as_xml(suite: str, cases: Sequence[JUnitCase], *, timestamp: str) -> str:
    """The document; `timestamp` is an ISO 8601 moment."""
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(bool(case.failure) for case in cases)),
        "errors": "0",
        "skipped": str(sum(bool(case.skipped) for case in cases)),
        "time": "0",
    }
    root = ElementTree.Element("testsuites", {"name": "scalecard", **counts})
    # Jenkins' schema has local moments without a zone; ours are UTC.
    parent = ElementTree.SubElement(root, "testsuite", {"name": _clean(suite), **counts, "timestamp": timestamp[:19]})
    for case in cases:
        _add(parent, case)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _add(parent: ElementTree.Element, case: JUnitCase) -> None:
    own = {"classname": f"scalecard.{_clean(case.group)}", "name": _clean(case.name), "time": "0"}
    found, details = ElementTree.SubElement(parent, "testcase", own), "\n".join(map(_clean, case.details))
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
