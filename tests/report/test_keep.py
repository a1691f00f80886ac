"""Kept nights: whole, never twice, never overwritten; and an index that can always be made anew."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.records.files import InvalidResult
from scalecard.records.record import Result
from scalecard.report import kept_nights, night_folders
from scalecard.report.kept_nights import keep
from support.nights import Nights, step

Make = Callable[..., Result]


@pytest.fixture
def nights(tmp_path: Path, make_result: Make) -> Nights:
    return Nights(tmp_path, make_result)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_night_is_named_by_its_last_moment_and_holds_the_files_as_they_were(nights: Nights) -> None:
    path = nights.measure(1.0)
    kept = keep(nights.folder())
    assert kept.experiments == ["async_timing"]
    assert kept.folder == nights.folder() / "history" / "20260102T021000Z"
    assert gzip.decompress((kept.folder / "async_timing.json.gz").read_bytes()) == path.read_bytes()
    assert kept_nights.read_kept(kept.folder / "async_timing.json.gz") == nights.last
    assert os.stat(kept.folder).st_mode & 0o777 == 0o755


def test_what_was_kept_is_not_kept_again_and_the_rest_is(nights: Nights, make_result: Make) -> None:
    nights.keep(1.0)
    before = tree(nights.folder() / "history")
    assert keep(nights.folder()).folder is None
    assert tree(nights.folder() / "history") == before
    text = nights.measure(1.0).read_text()
    other = nights.folder() / "copy_cost.json"
    other.write_text(text.replace('"async_timing"', '"copy_cost"'))
    nights.folder().joinpath("async_timing.json").write_text(index_text(nights, "20260102T021000Z"))
    kept = keep(nights.folder())
    assert (kept.experiments, [night.name for night in night_folders.nights(nights.folder())][-1:]) == (
        ["copy_cost"],
        [kept.folder.name if kept.folder else ""],
    )
    assert before.items() <= {**tree(nights.folder() / "history"), "trend.json": before["trend.json"]}.items()


def index_text(nights: Nights, night: str) -> str:
    return gzip.decompress((nights.folder() / "history" / night / "async_timing.json.gz").read_bytes()).decode()


def test_two_nights_of_one_second_have_two_names(nights: Nights) -> None:
    first = nights.keep(1.0)
    path = nights.folder() / "async_timing.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "finished": data["finished"].replace(".500", ".900")}))
    second = keep(nights.folder())
    assert (first.folder and first.folder.name, second.folder and second.folder.name) == (
        "20260102T021000Z",
        "20260102T021000Z-2",
    )
    assert len(night_folders.nights(nights.folder())) == 2


@pytest.mark.parametrize(
    "how", ["without what its section needs", "damaged", "of another folder", "of two machines", "absent"]
)
def test_what_cannot_be_used_keeps_nothing_and_is_named(nights: Nights, how: str) -> None:
    path = nights.measure(1.0)
    text = path.read_text()
    if how == "damaged":
        path.write_text(text[:500])
    elif how == "unfit":
        path.write_text(text.replace('"dtype"', '"kind"'))
    elif how == "of another folder":
        path.write_text(text.replace('"platform": "box"', '"platform": "other"'))
    elif how == "of two machines":
        other = text.replace('"async_timing"', '"copy_cost"').replace('"fingerprint": "', '"fingerprint": "0')
        path.with_name("copy_cost.json").write_text(other)
    else:
        path.unlink()
    with pytest.raises(ValueError, match=r"box"):
        keep(nights.folder())
    assert night_folders.nights(nights.folder()) == []


def test_a_keep_that_fails_half_way_leaves_no_night(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    nights.keep(1.0)
    nights.measure(1.0)

    def full(path: Path, content: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("scalecard.report.kept_nights.write_atomically", full)
    with pytest.raises(OSError, match="No space"):
        keep(nights.folder())
    assert sorted(path.name for path in (nights.folder() / "history").iterdir()) == ["20260102T021000Z", "trend.json"]


def test_what_a_killed_keep_left_is_removed_and_its_night_is_in_the_next_index(nights: Nights) -> None:
    nights.keep(1.0)
    history = nights.folder() / "history"
    stale = history / ".20260103T021000Z.abcdefgh"
    stale.mkdir()
    (stale / "async_timing.json.gz").write_bytes(b"half")
    (history / "trend.json").unlink()  # killed between the night and its index
    assert [night.name for night in night_folders.nights(nights.folder())] == ["20260102T021000Z"]
    nights.keep(1.1)
    assert not stale.exists()
    assert [entry.night for entry in kept_nights.load(history / "trend.json")] == [
        "20260102T021000Z",
        "20260103T021000Z",
    ]


def test_an_index_has_the_numbers_with_their_intervals_and_is_made_anew(nights: Nights) -> None:
    nights.keep(0.5)
    path = nights.folder() / "history" / "trend.json"
    (entry,) = kept_nights.load(path)
    (number,) = entry.numbers
    assert (entry.experiment, number.label, number.unit) == ("async_timing", "float32 products of 4 rows", "TFLOP/s")
    # 2 x 4^3 = 128 operations in the median of 0.49985, 0.500175 and 0.500675 s.
    assert number.value == pytest.approx(128 / 0.500175 / 1e12, rel=1e-5)
    assert number.interval
    low, high = number.interval
    assert low < number.value < high
    for damage in ("", "{}", '{"version": 1, "entries": [{}]}', '{"version": 9, "entries": []}'):
        path.write_text(damage)
        with pytest.raises(InvalidResult, match=str(path)):
            kept_nights.load(path)
        assert kept_nights.refreshed(nights.folder()) == ([entry], [])
    kept_nights.save([entry], nights.folder())
    shutil.rmtree(nights.folder() / "history" / entry.night)
    assert kept_nights.refreshed(nights.folder()) == ([], [])


def test_samples_that_cannot_be_times_are_refused(nights: Nights) -> None:
    nights.keep(0.5)
    path = nights.folder() / "history" / "trend.json"
    data = json.loads(path.read_text())
    data["entries"][0]["numbers"][0]["samples"][0][0] = 0.0
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidResult, match="no index"):
        kept_nights.load(path)


def test_a_night_that_cannot_be_read_is_told_and_stops_nothing(nights: Nights) -> None:
    nights.keep(1.0)
    history = nights.folder() / "history"
    for name, content in {"20250101T000000Z": b"no gzip", "20250102T000000Z": gzip.compress(b"{}")}.items():
        (history / name).mkdir()
        (history / name / "async_timing.json.gz").write_bytes(content)
    kept = nights.keep(1.1)
    assert kept.folder
    assert [line.split(": ")[1].split("/")[-2] for line in kept.left_out] == ["20250101T000000Z", "20250102T000000Z"]
    assert len(kept_nights.load(history / "trend.json")) == 2


def test_only_other_drivers_of_the_same_hardware_belong_together(nights: Nights) -> None:
    gpus = {"kind": "cuda", "gpus": ["H200"], "gpu_uuid_hashes": ["a"]}
    nights.keep(1.0, "old", machine={**gpus, "driver": "570.1"})
    nights.keep(1.0, "new", machine={**gpus, "driver": "580.2"})
    nights.keep(1.0, "trial", machine={**gpus, "driver": "580.2"})
    nights.keep(1.0, "neighbour", machine={**gpus, "gpu_uuid_hashes": ["b"], "driver": "570.1"})
    nights.measure(1.0, "unkept", machine={**gpus, "driver": "560.1"})

    def related(platform: str) -> list[str]:
        return [path.parts[-3] for path in night_folders.indices(nights.folder(platform))]

    assert related("new") == ["new", "old"]
    assert related("old") == ["old", "new", "trial"]
    assert related("neighbour") == ["neighbour"]
    assert related("unkept") == ["new", "old", "trial"]
    (nights.folder("old") / "machine.json").write_text("{")
    assert related("new") == ["new"]


def test_a_night_has_the_name_of_a_moment_in_utc() -> None:
    assert night_folders.night_name("2026-01-02T01:10:00.5+02:00") == "20260101T231000Z"


def test_a_record_of_three_processes_keeps_them(nights: Nights) -> None:
    nights.keep(step(1.0, processes=3))
    (entry,) = kept_nights.load(nights.folder() / "history" / "trend.json")
    assert len(entry.numbers[0].record.samples) == 3
