"""A job's command on each of its nodes: how ssh starts it there, and which of them ends the job."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scalecard.jobs import every_node


def test_what_every_job_starts_with_loads_no_large_library() -> None:
    """Each job waits for it, on every node."""
    started = "import sys, scalecard.jobs.every_node, scalecard.jobs.containers.launch as _; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", started], text=True).split()
    assert "scalecard.hardware.isolation" in loaded
    assert {"torch", "pydantic", "pandas", "numpy"}.isdisjoint(loaded)


def test_a_node_that_refuses_ends_the_job_and_one_that_is_lost_does_not() -> None:
    first = subprocess.Popen(["sleep", "60"])
    others = [["sh", "-c", "exit 0"], ["sh", "-c", "exit 2"]]
    assert every_node._wait(first, [subprocess.Popen(other) for other in others]) == 2
    assert first.returncode == -signal.SIGTERM
    assert every_node._wait(subprocess.Popen(["sleep", "1"]), [subprocess.Popen(["sh", "-c", "kill -9 $$"])]) == 0


def test_the_others_end_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_node, "LINGER", 0.5)
    others = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    assert every_node._wait(subprocess.Popen(["sh", "-c", "kill -9 $$"]), others) == -signal.SIGKILL
    assert [other.wait(10) for other in others] == [-signal.SIGTERM] * 2


def test_ssh_starts_the_command_in_this_folder_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder; it's ours"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SCALECARD_SSH", "ssh -p 2222")
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": "workflow/src:my code",
        "SCALECARD_NODES": "3",
        "SCALECARD_RENDEZVOUS": "10.0.0.1:29400",
        "NCCL_DEBUG": "$HOME 'quoted'",
        "SCALECARD_CONTAINER": "the password of a proxy",
        "HOME": "/home/here",
    }
    names = [f"SCALECARD_{name}" for name in ("NODE", "NODES", "RENDEZVOUS")]
    names += ["PYTHONPATH", "NCCL_DEBUG", "SCALECARD_CONTAINER", "HOME"]
    shown = "".join(f"${{{name}-none}}|" for name in names)
    first, *others = every_node.by_ssh(
        ["b", "me@c"], ["sh", "-c", f'echo "{shown}$PWD|$1"', "sh", "two words"], environment
    )
    assert first[:2] == ["env", "SCALECARD_NODE=0"]
    assert [other[:4] for other in others] == [["ssh", "-p", "2222", "-tt"]] * 2
    assert [other[-2] for other in others] == ["b", "me@c"]
    for number, other in enumerate(others, 1):  # what a login shell there gets
        done = subprocess.run(["env", "-i", "/bin/sh", "-c", other[-1]], cwd="/", capture_output=True, text=True)
        settings = f"{number}|3|10.0.0.1:29400|workflow/src:my code|$HOME 'quoted'|none|none"
        assert done.stdout == f"{settings}|{folder}|two words\n"


@pytest.mark.parametrize(
    ("ssh", "expected"),
    [
        (
            "sh -c 'echo b: no route >&2; exit 255'",
            "hosts = b: b: no route; accepted: other machines that ssh",
        ),
        ("false", f"hosts = b: {sys.executable} is not there; accepted: other machines that ssh"),
        ("echo hostname no.such.host.invalid #", "hosts = b: no.such.host.invalid has no address here"),
        ("echo hostname 127.0.0.1 #", "hosts = b: this machine itself; accepted: other machines"),
    ],
)
def test_a_host_that_cannot_be_used_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, ssh: str, expected: str
) -> None:
    script = tmp_path / "ssh"
    script.write_text(f"#!/bin/sh\n{ssh}\n")
    script.chmod(0o755)
    monkeypatch.setenv("SCALECARD_SSH", shlex.quote(str(script)))
    started = tmp_path / "started"
    command = ["--cluster", "none", "--nodes", "2", "--hosts", "b", "--", "touch", str(started)]
    monkeypatch.setattr(sys, "argv", ["every_node", *command])
    assert every_node.main() == every_node.REFUSED
    assert expected in capfd.readouterr().err
    assert not started.exists()
