"""A finished measurement is kept somewhere, and one that could not be saved is not begun."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.records.files import NotSaved, load, refuse_unsavable, save_or_keep
from scalecard.records.record import Result
from support.builders import timed

Make = Callable[..., Result]


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A path that not even root can write to: a file is in the place of its folder."""
    (tmp_path / "results").touch()
    return tmp_path / "results" / "box" / "ddp.json"


def test_what_can_be_saved_leaves_nothing_behind(make_result: Make, tmp_path: Path) -> None:
    refuse_unsavable(make_result([]), tmp_path / "results" / "box" / "ddp.json")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused_before(make_result: Make, blocked: Path) -> None:
    with pytest.raises(NotSaved, match=f"^{blocked}: nothing was measured, because it could not be saved: "):
        refuse_unsavable(make_result([]), blocked)


def test_a_folder_in_the_place_of_the_file_is_refused_before(make_result: Make, tmp_path: Path) -> None:
    with pytest.raises(NotSaved, match="it is a folder"):
        refuse_unsavable(make_result([]), tmp_path)


def test_settings_that_json_does_not_know_are_refused_before(make_result: Make, tmp_path: Path) -> None:
    with pytest.raises(NotSaved, match="nothing was measured"):
        refuse_unsavable(make_result([], spec={"max_seconds": float("inf")}), tmp_path / "ddp.json")


def test_a_result_is_saved_where_it_belongs(make_result: Make, tmp_path: Path) -> None:
    result = make_result([timed([1.0])])
    save_or_keep(result, tmp_path / "ddp.json", elsewhere=[])
    assert load(tmp_path / "ddp.json") == result
    assert [path.name for path in tmp_path.iterdir()] == ["ddp.json"]


def test_a_result_whose_folder_is_gone_is_kept_elsewhere_and_the_path_is_told(
    make_result: Make, blocked: Path, tmp_path: Path
) -> None:
    result, kept = make_result([timed([1.5])]), tmp_path / "other" / "ddp.json.unsaved"
    with pytest.raises(NotSaved, match=f"^{blocked}: could not be written: .*is in {kept}$"):
        save_or_keep(result, blocked, elsewhere=[blocked.parent.parent, kept.parent])
    assert load(kept) == result, "once it is renamed"


def test_a_result_that_is_not_valid_is_kept_beside_its_file(make_result: Make, tmp_path: Path) -> None:
    result = make_result([dataclasses.replace(timed([1.5]), status="odd")])
    with pytest.raises(
        NotSaved, match=r"ddp.json: could not be written: .*'odd': Input should be 'ok', 'skipped' or 'failed'"
    ):
        save_or_keep(result, tmp_path / "ddp.json", elsewhere=[])
    assert [path.name for path in tmp_path.iterdir()] == ["ddp.json.unsaved"]


def test_samples_that_json_does_not_know_are_kept_too(make_result: Make, tmp_path: Path) -> None:
    with pytest.raises(NotSaved, match="must be finite"):
        save_or_keep(make_result([timed([1.5, math.inf])]), tmp_path / "ddp.json", elsewhere=[])
    kept = json.loads((tmp_path / "ddp.json.unsaved").read_text())
    assert kept["records"][0]["samples"] == [[1.5, math.inf]]


def test_what_no_folder_takes_is_said_to_be_lost(make_result: Make, blocked: Path) -> None:
    with pytest.raises(NotSaved, match="is lost, because nothing could be written to"):
        save_or_keep(make_result([timed([1.5])]), blocked, elsewhere=[])
