"""Where results are found: a platform's name, a folder, or a git revision."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scalecard.cli.locate_results import find, platform_folder, this_platform
from scalecard.hardware.machine import Machine
from scalecard.jobs.inputs import write_machine
from scalecard.records.record import Result
from scalecard.report.kept_nights import keep
from support.builders import repeated
from support.nights import Nights

Save = Callable[..., Path]


@pytest.fixture
def committed(tmp_path: Path, save_result: Save) -> Path:
    """A repository: 'box' alone in its first commit, measured again beside 'other' in its second."""

    def git(*args: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *identity, *args], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for number, platforms in enumerate([["box"], ["box", "other"]], 1):
        for platform in platforms:
            save_result(platform, repeated(float(number)))
        git("add", "results")
        git("commit", "-qm", f"commit {number}")
    return tmp_path


@pytest.fixture(autouse=True)
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def seconds(name: str) -> float:
    (result,) = find(name)
    return round(result.records[0].median)


def test_a_platform_and_its_folder_are_the_same(tmp_path: Path, save_result: Save) -> None:
    folder = save_result("box", repeated(1.0)).parent
    (folder / "machine.json").write_text("{}")
    assert find("box") == find("results/box") == find(str(folder)) == find("results")


@pytest.mark.parametrize(("name", "expected"), [("HEAD~1", 1), ("HEAD~1:box", 1), ("HEAD:box", 2), ("box", 2)])
def test_a_revision_has_the_results_committed_in_it(committed: Path, name: str, expected: int) -> None:
    assert seconds(name) == expected


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("nowhere", "'nowhere': .*box, other"),
        ("HEAD", "'HEAD': .*HEAD:box, HEAD:other"),
        ("HEAD:elsewhere", "HEAD:box, HEAD:other"),
        ("results", "results/box, .*results/other"),
    ],
)
def test_what_is_not_found_is_named_with_what_there_is(committed: Path, name: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        find(name)


@pytest.fixture
def nights(tmp_path: Path, make_result: Callable[..., Result]) -> Nights:
    """Two nights of 1 s and 2 s, and 3 s now."""
    found = Nights(tmp_path, make_result)
    found.keep_all([1.0, 2.0])
    found.measure(3.0)
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("box@last", 2),
        ("@last", 2),
        ("@now", 3),
        ("box@now", 3),
        ("box", 3),
        ("box@20260102T021000Z", 1),
        ("results/box/history/20260102T021000Z", 1),
        ("results", 3),
        ("results/box", 3),
    ],
)
def test_a_kept_night_is_found_by_name(nights: Nights, name: str, expected: int) -> None:
    assert seconds(name) == expected


def test_a_night_that_was_not_kept_is_named_with_those_that_were(nights: Nights) -> None:
    with pytest.raises(ValueError, match=r"'box@2025': .*20260102T021000Z, 20260103T021000Z; or last, now"):
        find("box@2025")


def test_a_night_has_each_experiments_latest_result_until_then(nights: Nights) -> None:
    text = (nights.folder() / "async_timing.json").read_text()
    (nights.folder() / "copy_cost.json").write_text(text.replace('"async_timing"', '"copy_cost"'))
    keep(nights.folder())
    nights.keep(4.0)
    found = {result.experiment: round(result.records[0].median) for result in find("box@last")}
    assert found == {"async_timing": 4, "copy_cost": 3}


def test_the_last_night_may_be_one_before_an_upgrade(nights: Nights) -> None:
    nights.measure(5.0, "upgraded", machine={"software": "f" * 12})
    (result,) = find("upgraded@last")
    assert (result.platform, round(result.records[0].median)) == ("box", 2)


def test_nights_in_a_commit_are_no_platforms(committed: Path) -> None:
    night = committed / "results" / "box" / "history" / "20260101T000100Z"
    night.mkdir(parents=True)
    night.with_name("trend.json").write_text("{}")
    (night / "async_timing.json").write_text("{}")
    for args in (["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "nights"]):
        subprocess.run(["git", *args], cwd=committed, check=True)
    assert seconds("HEAD:box") == 2
    with pytest.raises(ValueError, match=r"choose one: HEAD:box, HEAD:other$"):
        find("HEAD")


def test_this_machines_platform_is_the_default(tmp_path: Path, save_result: Save, machine: Machine) -> None:
    with pytest.raises(ValueError, match="no results under results/"):
        this_platform()
    folders = [save_result(name, repeated(1.0)).parent for name in ("first", "elsewhere", "second")]
    for moment, folder in enumerate(folders):
        os.utime(folder / "async_timing.json", (moment, moment))
    assert this_platform().resolve() == folders[2], "of none that is known, the one written last"
    write_machine(folders[1] / "machine.json", replace(machine, cores=999))
    write_machine(folders[0] / "machine.json", machine)
    assert this_platform().resolve() == folders[0]


def test_a_platforms_folder_is_found_by_name_and_as_a_folder(nights: Nights) -> None:
    box = Path("results/box")
    assert [platform_folder(name) for name in ("box", "results/box", "results")] == [box] * 3
    nights.measure(1.0, "other", machine={"cores": 999})
    with pytest.raises(ValueError, match="results/box, results/other"):
        platform_folder("results")
    with pytest.raises(ValueError, match=r"'nowhere': .*box, other"):
        platform_folder("nowhere")


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        find("empty")


def test_two_machines_in_one_folder_are_refused_with_files_and_facts(tmp_path: Path, save_result: Save) -> None:
    first, second = save_result("box", repeated(1.0)), save_result("moved", repeated(1.0), driver="570.1")
    text = second.read_text().replace('"platform": "moved"', '"platform": "box"')
    first.with_name("copy_cost.json").write_text(text.replace("async_timing", "copy_cost"))
    with pytest.raises(ValueError, match=r"async_timing\.json and copy_cost\.json .*driver .* and 570\.1"):
        find("box")
