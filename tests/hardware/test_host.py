"""The host's name in what gets published."""

import hashlib
import platform
from pathlib import Path

import pytest
from scalecard.hardware import host


def test_the_hashed_name_is_salted_with_a_secret_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name_in(project: str) -> str:
        monkeypatch.setattr(host, "SALT", tmp_path / project / "salt")
        host.project_salt.cache_clear()
        return host.hashed_name()

    first = name_in("a")
    assert name_in("b") != first
    assert name_in("a") == first, "the secret is kept"
    assert hashlib.sha256(platform.node().encode()).hexdigest()[:8] != first
    host.project_salt.cache_clear()


def test_where_no_secret_can_be_kept_one_lasts_for_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(host, "SALT", tmp_path / "file" / "salt")
    host.project_salt.cache_clear()
    assert host.hashed_name() == host.hashed_name()
    host.project_salt.cache_clear()
