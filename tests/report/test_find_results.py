"""Where results are found: a platform's name, a folder, or a git revision."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import repeated
from scalecard.report.comparison.find_results import find

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


def seconds(name: str, root: Path) -> float:
    (result,) = find(name, root)
    return round(result.records[0].median)


def test_a_platform_and_its_folder_are_the_same(tmp_path: Path, save_result: Save) -> None:
    folder = save_result("box", repeated(1.0)).parent
    (folder / "machine.json").write_text("{}")
    assert find("box", tmp_path) == find("results/box", tmp_path) == find(str(folder)) == find("results", tmp_path)


@pytest.mark.parametrize(("name", "expected"), [("HEAD~1", 1), ("HEAD~1:box", 1), ("HEAD:box", 2), ("box", 2)])
def test_a_revision_has_the_results_committed_in_it(committed: Path, name: str, expected: int) -> None:
    assert seconds(name, committed) == expected


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
        find(name, committed)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        find("empty", tmp_path)


def test_two_machines_in_one_folder_are_refused_with_files_and_facts(tmp_path: Path, save_result: Save) -> None:
    first, second = save_result("box", repeated(1.0)), save_result("moved", repeated(1.0), driver="570.1")
    text = second.read_text().replace('"platform": "moved"', '"platform": "box"')
    first.with_name("copy_cost.json").write_text(text.replace("async_timing", "copy_cost"))
    with pytest.raises(ValueError, match=r"async_timing\.json and copy_cost\.json .*driver .* and 570\.1"):
        find("box", tmp_path)
