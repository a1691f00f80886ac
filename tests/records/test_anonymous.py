"""What gets published names no host, address, user or path of this machine, and keeps everything else."""

import getpass
import os
import platform
from pathlib import Path

import pytest
from scalecard.records import anonymous as module
from scalecard.records.anonymous import anonymous


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "gpu-node-17.lab.example.org")
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot open '/home/alice/my data/x'", "cannot open '<path>'"),
        ("[Errno 2] No such file: /scratch/alice/x.bin, in /data", "[Errno 2] No such file: <path>, in <path>"),
        ("error:/srv/x", "error:<path>"),
        ("peer [10.0.0.12]:41243 and fe80::1:2ab and ::1", "peer [<address>]:41243 and <address> and <address>"),
        ("connect 192.168.1.5:29500 failed", "connect <address>:29500 failed"),
        ("to any network address of (node9.cluster, 29500)", "to any network address of (<host>, 29500)"),
        ("on gpu-node-17 and gpu-node-17.lab.example.org.", "on <host> and <host>."),
        ("process 12 of alice", "process 12 of <user>"),
        ("from https://alice:secret@proxy.corp:3128/x: refused", "from <address> refused"),
    ],
)
def test_private_names_go(text: str, expected: str) -> None:
    assert anonymous(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "out of memory: tried to allocate 2.00 GiB",
        "/dev/infiniband exists, but libibverbs is not installed",
        "at 12:34:56 the driver 570.86.10 and torch 2.15.0 said c10::Error",
        "GPU 1: 2048 MiB in use, 12 GB/s and/or 5 %",
        "of 2 ranks, rank 1 was killed by signal 9 (each waits 20 s for the others)",
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert anonymous(text) == text


def test_the_working_folder_and_home_go_even_with_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder of alice"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert anonymous(f"File {os.getcwd()}/run.py failed") == "File <path> failed"


def test_short_names_and_those_of_everyone_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "localhost")
    monkeypatch.setattr(module, "_user", lambda: "a")
    assert anonymous("a rank of localhost") == "a rank of localhost"
