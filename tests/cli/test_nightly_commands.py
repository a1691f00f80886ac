"""The commands of a nightly job: `scalecard health`, `keep`, `trend`, and `compare` with what was kept."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from scalecard.cli import health_gate
from scalecard.cli.commands import parser
from support.builders import repeated
from support.nights import Nights
from support.projects import ROOT
from support.stand_in_verdicts import ALERTS, install

Command = Callable[..., Any]
Save = Callable[..., Path]


@pytest.fixture
def health(save_result: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A health result of 'box', whose only alert is a low one."""
    path = save_result("box", repeated(1.0))
    text = path.read_text().replace('"async_timing"', '"health"')
    path.unlink()
    path.with_name("health.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, ALERTS["low"])
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "status"),
    [((), 0), (("--fail-on", "low"), 1), (("--fail-on", "errors"), 0), (("box", "--fail-on", "odd"), 1)],
)
def test_health_gates_a_cron_job(scalecard: Command, health: Path, arguments: tuple[str, ...], status: int) -> None:
    done = scalecard("health", *arguments)
    assert (done.status, done.err) == (status, "")
    assert done.out.startswith("box ("), "which platform was used"


def test_the_command_takes_every_level_of_the_gate(scalecard: Command, health: Path) -> None:
    assert {scalecard("health", "--fail-on", level).status for level in health_gate.LEVELS} == {0, 1}


def test_health_prints_json_and_writes_junit_even_if_it_fails(scalecard: Command, health: Path) -> None:
    done = scalecard("health", "--fail-on", "low", "--json", "--junit", "h.xml")
    assert (done.status, json.loads(done.out)["failed"]) == (1, True)
    assert ElementTree.parse(health / "h.xml").getroot().get("failures") == "1"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("nowhere",), "'nowhere'"), (("--max-age", "1"), "--max-age 1"), (("--max-age", "0"), "above 0")],
)
def test_health_of_bad_input_is_one_line_and_status_2(
    scalecard: Command, health: Path, arguments: tuple[str, ...], named: str
) -> None:
    done = scalecard("health", *arguments, "--fail-on", "low")
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert named in done.err


def test_a_platform_without_health_is_bad_input(scalecard: Command, two_platforms: Path) -> None:
    done = scalecard("health", "old", "--fail-on", "odd")
    assert (done.status, done.out) == (2, "")
    assert "'old': has no result of health (it has: async_timing)" in done.err


def test_nights_are_kept_followed_and_compared(
    scalecard: Command, tmp_path: Path, make_result: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nights = Nights(tmp_path, make_result)
    done = scalecard("keep", "box")
    assert (done.status, len(done.err.splitlines())) == (2, 1)
    for seconds in (1.0, 1.001, 0.999):
        nights.measure(seconds)
        assert scalecard("keep").status == 0
    assert scalecard("keep").out == "box: nothing new to keep\n"
    assert scalecard("trend", "--fail-on", "slower").status == 0
    nights.measure(1.2)
    assert scalecard("compare", "@last", "@now", "--only", "async_timing", "--fail-on", "slower").status == 1
    kept = scalecard("keep", "box")
    assert kept.out == "box: kept async_timing in results/box/history/20260105T021000Z\n"
    done = scalecard("trend", "box", "--fail-on", "slower", "--nights", "2", "--figure", "t.svg", "t.png")
    assert (done.status, done.err) == (1, "")
    assert done.out.splitlines()[0].endswith("1 slower")
    assert (tmp_path / "t.svg").exists()
    assert (tmp_path / "t.png").exists()
    assert json.loads(scalecard("trend", "--json", "--only", "async_timing").out)["numbers"][0]["verdict"] == "slower"
    assert scalecard("trend", "--margin", "0.5", "--fail-on", "slower").status == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--margin", "2"), "--margin 2"), (("--nights", "-1"), "--nights -1"), (("nowhere",), "'nowhere'")],
)
def test_a_trend_of_bad_input_is_one_line_and_status_2(
    scalecard: Command, two_platforms: Path, arguments: tuple[str, ...], named: str
) -> None:
    done = scalecard("trend", *arguments)
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert named in done.err


def test_the_commands_of_the_manual_for_nights_are_commands() -> None:
    """Options that were renamed, and not in the manual, would fail every night."""
    text = (ROOT / "docs" / "nightly.md").read_text()
    lines = re.findall(r"^(?:    )?scalecard (.*?)(?: +#.*| \|\| .*)?$", text, re.MULTILINE)
    assert {line.split()[0] for line in lines} == {"health", "compare", "keep", "trend"}
    for line in lines:
        assert parser(None).parse_args(line.split()).command == line.split()[0]
