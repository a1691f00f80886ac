"""Result files: the round trip, and refusing what is not one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard import schema
from scalecard.schema import Check, InvalidResult, Record, Result

OK = Record(
    case={"devices": 2, "dtype": "float32"},
    metric="time",
    unit="s",
    samples=[0.1, 0.2, 0.3],
    checks=[Check(name="sum", difference=0.0, tolerance=0.0)],
    telemetry=[{"count": 3, "stopped": "30 rounds"}],
)
SKIPPED = Record(case={"devices": 4}, metric="time", unit="s", status="skipped", note="needs 4 devices")


def test_round_trip(tmp_path: Path, make_result: Callable[..., Result]) -> None:
    result = make_result([OK, SKIPPED])
    schema.save(result, tmp_path / "a.json")
    assert schema.load(tmp_path / "a.json") == result


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda d: d.pop("records"), "records"),
        (lambda d: d.update(hostname="x"), "hostname"),
        (lambda d: d.update(schema_version=99), "schema_version"),
        (lambda d: d["records"][0].pop("unit"), "unit"),
        (lambda d: d["records"][0]["samples"].append("fast"), "samples"),
        (lambda d: d["records"][0]["checks"][0].update(passed=False), "passed"),
        (lambda d: d["records"][1].update(note=""), "note"),
        (lambda d: d["records"][0].update(samples=[]), "samples"),
    ],
)
def test_a_damaged_file_is_refused_by_name_and_field(
    tmp_path: Path, make_result: Callable[..., Result], damage: Callable[[dict], object], named: str
) -> None:
    path = tmp_path / "a.json"
    schema.save(make_result([OK, SKIPPED]), path)
    data = json.loads(path.read_text())
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidResult) as error:
        schema.load(path)
    assert str(path) in str(error.value)
    assert named in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"name": "something else"}'])
def test_a_truncated_or_foreign_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InvalidResult, match=r"a\.json"):
        schema.load(tmp_path / "a.json")


def test_a_failed_check_cannot_be_saved(tmp_path: Path, make_result: Callable[..., Result]) -> None:
    failed = Record(
        case={}, metric="time", unit="s", samples=[1.0], checks=[Check(name="x", difference=1, tolerance=0)]
    )
    with pytest.raises(Exception, match="True was expected"):
        schema.save(make_result([failed]), tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    schema.write_atomically(path, "old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        schema.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
