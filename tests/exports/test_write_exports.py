"""`scalecard export` writes all files of a platform, the same ones twice, and refuses what cannot be exported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scalecard import exports
from scalecard.records import files
from support.exported import results


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = results()  # which reads the project's files
    monkeypatch.chdir(tmp_path)
    for result in made:
        files.save(result, Path("results", result.platform, f"{result.experiment}.json"))
    return tmp_path / "results" / "box8"


def written(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("named", [[], ["box8"], ["results/box8"]])
def test_all_files_are_written_beside_the_platform(
    scalecard: Callable[..., Any], platform: Path, named: list[str]
) -> None:
    done = scalecard("export", *named)
    assert (done.status, done.err) == (0, "")
    found = written(platform.parent / "exports" / "box8")
    names = [result.experiment for result in results()]
    assert set(found) == {*exports.linked(names), *exports.beside(names)}
    for name in names:
        assert found[f"raw/{name}.json"] == (platform / f"{name}.json").read_bytes()


def test_the_same_results_give_the_same_bytes_anywhere(scalecard: Callable[..., Any], platform: Path) -> None:
    for name in ("one", "two/folders"):
        assert scalecard("export", "box8", "--output", name).status == 0
    assert written(Path("one")) == written(Path("two", "folders"))


def test_only_given_results_are_exported_and_scaling_only_where_it_was_measured(
    scalecard: Callable[..., Any], platform: Path
) -> None:
    assert scalecard("export", "--results", platform / "allreduce.json", "--output", "out").status == 0
    assert set(written(Path("out"))) == {*exports.OF_ALL, "Snakefile", "settings.json", "raw/allreduce.json"}


def test_a_damaged_result_is_named_and_nothing_is_written(scalecard: Callable[..., Any], platform: Path) -> None:
    (platform / "ddp.json").write_text("{")
    done = scalecard("export", "box8", "--output", "out")
    assert (done.status, len(done.err.splitlines())) == (2, 1)
    assert "box8/ddp.json" in done.err
    assert not Path("out").exists()


def test_a_platform_without_results_is_refused_in_one_line(scalecard: Callable[..., Any], platform: Path) -> None:
    (platform.parent / "empty").mkdir()
    done = scalecard("export", "empty")
    assert (done.status, done.err) == (2, "'results/empty': no result files in it\n")
