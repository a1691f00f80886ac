"""What the workflow says about a build of the image, and keeps of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.projects import SMOKE, completed, copy_project

pytestmark = pytest.mark.workflow


def test_the_password_of_a_proxy_is_neither_shown_nor_kept(tmp_path: Path, fake_engine: Callable[..., None]) -> None:
    folder = copy_project(tmp_path / "project")
    facts = json.dumps([{"Id": "sha256:" + "a" * 64, "Size": 5}])
    fake_engine("docker", f"case $1 in info) echo '{{}}';; image) echo '{facts}';; esac")
    block = {"engine": "docker", "build_args": {"HTTPS_PROXY": "http://me:secret@proxy.example:3128"}}
    (folder / "proxy.yaml").write_text(json.dumps({"container": block}))
    said = completed(folder, "container", "--printshellcmds", *SMOKE, "proxy.yaml")
    assert "HTTPS_PROXY=http://***@proxy.example:3128" in said
    kept = [path for kind in ("results", ".snakemake") for path in (folder / kind).rglob("*") if path.is_file()]
    assert any("metadata" in path.parts for path in kept)
    assert not any(b"secret" in text for text in (said.encode(), *(path.read_bytes() for path in kept)))
