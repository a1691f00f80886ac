"""Folders in which there is no room to work are named before the start."""

import os
from pathlib import Path

import pytest
from scalecard.jobs import startup
from scalecard.jobs.config import InvalidConfig


def test_room_everywhere_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    startup.check_disk_space(["snakemake"], tmp_path / "results")
    assert [path.name for path in tmp_path.rglob("*")] == ["results"]


@pytest.mark.parametrize("full", ["temporary", "results"])
def test_a_full_folder_is_named_with_the_amount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    class Full:
        """A file on a full disk, if it is made there."""

        def __init__(self, dir: Path) -> None:
            self.full = dir.name == full

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def write(self, content: bytes) -> None:
            if self.full:
                raise OSError(28, os.strerror(28))

        def flush(self) -> None:
            pass

    monkeypatch.setattr(startup.tempfile, "TemporaryFile", Full)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    with pytest.raises(InvalidConfig, match=rf"{tmp_path}/{full}: .*No space left on device \(4 MiB are needed, "):
        startup.check_disk_space(["snakemake"], tmp_path / "results")
    startup.check_disk_space(["snakemake", "-n"], tmp_path / "results")
