"""A file is written whole or not at all."""

import fcntl
from pathlib import Path

import pytest
from scalecard.records.atomic import CannotWrite, remove_unfinished, write_atomically


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, "old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["µs", b"\x89PNG"])
def test_text_is_written_as_utf8_and_bytes_as_they_are(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "new folder" / "a"
    write_atomically(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert path.stat().st_mode & 0o777 == 0o644, "other users and the container read it too"


def test_a_full_disk_is_one_sentence_with_the_path_and_the_amount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(CannotWrite) as error:
        write_atomically(tmp_path / "a.json", "x" * 2500)
    assert str(error.value).startswith(f"{tmp_path}/a.json: cannot be written: No space left")
    assert "2.5 kB are needed" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_a_file_is_one_sentence_too(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(CannotWrite, match=r"a/b.json: cannot be written: "):
        write_atomically(tmp_path / "a" / "b.json", "")


def test_what_a_killed_writer_left_goes_and_what_is_being_written_stays(tmp_path: Path) -> None:
    left, live, others = (tmp_path / name for name in (".a.json.x1y2z3_4", ".b.json.abcdefgh", ".gitignore"))
    for path in (left, live, others):
        path.touch()
    with live.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_unfinished(tmp_path.glob(".*"))
    assert sorted(tmp_path.iterdir()) == sorted([live, others])
