"""A file is written whole or not at all."""

from pathlib import Path

import pytest
from scalecard.records.atomic import write_atomically


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
