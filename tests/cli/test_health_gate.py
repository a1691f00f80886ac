"""The gate on a machine's health: what fails at which level, and what it prints for people and for programs."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from scalecard.analysis.health.verdict import ADVICE, Kind, Part
from scalecard.cli import health_gate
from scalecard.cli.health_gate import Health
from scalecard.records.record import Result
from support.builders import repeated
from support.stand_in_verdicts import ALERTS, HEALTHY, install

Check = Callable[..., Health]


@pytest.fixture
def health_result(make_result: Callable[..., Result]) -> Result:
    return make_result([repeated(1.0)], experiment="health")


@pytest.fixture
def checked(health_result: Result, monkeypatch: pytest.MonkeyPatch) -> Check:
    """The health of a machine with these alerts."""

    def check(*words: str, fail_on: str | None = None) -> Health:
        install(monkeypatch, *(ALERTS[word] for word in words))
        return health_gate.check([health_result], "box", fail_on=fail_on)

    return check


@pytest.mark.parametrize(
    ("level", "failing"),
    [
        (None, []),
        ("errors", ["errors"]),
        ("low", ["errors", "slowed down", "low"]),
        ("odd", ["errors", "slowed down", "low", "odd one out"]),
    ],
)
def test_a_level_includes_those_before_it(checked: Check, level: str | None, failing: list[str]) -> None:
    assert [alert.verdict for alert in checked(*ALERTS, fail_on=level).failing] == failing


def test_what_is_odd_and_low_besides_fails_as_low(checked: Check) -> None:
    both = replace(ALERTS["odd one out"], low=True)
    found = replace(checked(fail_on="low"), alerts=[both, ALERTS["odd one out"]])
    assert found.failing == [both]


@pytest.mark.parametrize("level", [None, *health_gate.LEVELS])
def test_a_healthy_machine_fails_at_no_level(checked: Check, level: str | None) -> None:
    assert checked(fail_on=level).failing == []


def test_each_part_is_a_line_and_each_alert_has_its_advice(checked: Check) -> None:
    lines = health_gate.output(checked("low", "slowed down", fail_on="errors")).text.splitlines()
    assert lines[0].startswith("box (")
    assert lines[0].endswith("measured 2026-01-01 00:01 UTC")
    assert lines[1:] == [
        "  compute     slowed down  2 of 3 normal",
        "  GPU links   normal       1 of 1 normal",
        "  host        not judged   nothing known to compare with",
        "  host links  low          0 of 1 normal",
        "low: GPU 2, 100 GB/s (120 GB/s is the median of 4).",
        f"  {ADVICE[Kind.SLOT_WIDTH]}",
        "slowed down: GPU 1, 100 GB/s (120 GB/s is the median of 4).",
        f"  {ADVICE[Kind.SLOWED_DOWN]}",
        "2 alerts, 0 of them fail --fail-on errors",
    ]


def test_a_part_that_is_slow_by_another_parts_fault_is_not_called_normal(
    health_result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fault is one alert: a slow link is the alert, and the collectives over it have none of their own."""
    slow = [replace(ALERTS["low"], part=Part.COLLECTIVES, verdict=word) for word in ("normal", "odd one out", "low")]
    install(monkeypatch, verdicts=slow)
    found = health_gate.check([health_result], "box", fail_on="odd")
    assert health_gate.output(found).text.splitlines()[1] == (
        "  collectives  odd one out  1 of 3 normal, by an alert of another part"
    )
    assert found.failing == []
    assert 'failures="0"' in health_gate.output(found).junit


def test_without_a_level_the_closing_line_names_none(checked: Check) -> None:
    assert health_gate.output(checked("low")).text.splitlines()[-1] == "1 alert"


def test_json_says_which_alerts_fail(checked: Check) -> None:
    told = json.loads(health_gate.output(checked("errors", "odd one out", fail_on="low")).json)
    assert {key: told[key] for key in ("platform", "fail_on", "failed", "emulated")} == {
        "platform": "box",
        "fail_on": "low",
        "failed": True,
        "emulated": True,
    }
    assert [(alert["verdict"], alert["fails"]) for alert in told["alerts"]] == [
        ("errors", True),
        ("odd one out", False),
    ]
    assert told["parts"][0] == {"part": "compute", "verdict": "normal", "judged": 2, "normal": 2}
    assert len(told["verdicts"]) == len(HEALTHY) + 2
    assert set(told["verdicts"][0]) == {"part", "what", "value", "normal", "verdict", "advice"}


def test_junit_has_a_case_for_each_part_and_the_alerts_that_fail(checked: Check) -> None:
    document = health_gate.output(checked("errors", "odd one out", fail_on="low")).junit
    (suite,) = ElementTree.fromstring(document.encode())
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    cases = {case.get("name"): case for case in suite}
    assert list(cases) == ["compute", "GPU links", "host", "memory"]
    failure = cases["memory"].find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type")) == (
        "errors: GPU 0, 100 GB/s (120 GB/s is the median of 4)",
        "verdict",
    )
    assert failure.text == "errors: GPU 0, 100 GB/s (120 GB/s is the median of 4)\n" + ADVICE[Kind.MEMORY_ERRORS]
    assert cases["host"].find("skipped") is not None
    told = cases["GPU links"].find("system-out")
    assert told is not None
    assert "odd one out: GPU 0 to 3" in str(told.text), "an alert that does not fail is told all the same"


def test_junit_without_a_level_fails_for_any_alert(checked: Check) -> None:
    (suite,) = ElementTree.fromstring(health_gate.output(checked("odd one out")).junit.encode())
    assert suite.get("failures") == "1"


def test_two_alerts_of_a_part_are_one_failure(checked: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ALERTS["low"]
    install(monkeypatch, first, replace(first, who="GPU 3"))
    found = replace(checked("low"), alerts=[first, replace(first, who="GPU 3")])
    (suite,) = ElementTree.fromstring(health_gate.output(found).junit.encode())
    (failure,) = [case.find("failure") for case in suite if case.find("failure") is not None]
    assert failure is not None
    assert str(failure.get("message")).endswith("(and 1 more)")
    assert "GPU 3" in str(failure.text)


def test_results_without_health_are_one_line_with_what_they_have(make_result: Callable[..., Result]) -> None:
    with pytest.raises(
        ValueError, match=r"^'box': has no result of health \(it has: async_timing\); .*snakemake health"
    ):
        health_gate.check([make_result([repeated(1.0)])], "box", fail_on=None)


def test_an_old_result_is_refused_where_a_new_one_is_asked_for(
    health_result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    old = replace(health_result, finished=(datetime.now(UTC) - timedelta(hours=30)).isoformat())
    assert health_gate.check([old], "box", fail_on=None, max_age=31)
    with pytest.raises(ValueError, match=r"'box': health was measured 30\.0 hours ago, more than --max-age 24"):
        health_gate.check([old], "box", fail_on=None, max_age=24)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=r"--max-age .*must be above 0"):
            health_gate.check([old], "box", fail_on=None, max_age=wrong)
