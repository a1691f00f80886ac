"""Choosing an engine, building and launching, against fake `docker` and `podman` executables."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from conftest import ROOT
from scalecard import __main__ as cli
from scalecard.containers import build, engines, launch, marker
from scalecard.containers.marker import Marker

DIGEST = "sha256:" + "a" * 64
Fake = Callable[..., None]
IMAGE = Marker(engine="docker", why="the first engine that answers", image=DIGEST, digest=DIGEST)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Put an executable of that name, a shell script, alone in PATH besides the system's shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    for engine in engines.ENGINES:  # the system's own do not exist for these tests
        monkeypatch.setitem(engines.QUESTION, engine, (str(folder / engine), *engines.QUESTION[engine][1:]))

    def put(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    return put


def test_a_client_without_a_daemon_does_not_answer(fake: Fake) -> None:
    fake("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    engine, why = engines.choose("auto")
    assert engine == "none"
    assert "Cannot connect to the Docker daemon" in why
    assert "podman: not installed" in why


def test_a_client_that_says_nothing_does_not_answer(fake: Fake) -> None:
    fake("docker", "exit 0")
    assert engines.choose("auto")[0] == "none"


def test_a_client_that_hangs_does_not_answer(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "TIMEOUT", 0.3)
    fake("docker", "exec sleep 5")
    fake("podman", "echo 4.3.1")
    assert engines.choose("auto") == ("podman", "the first engine that answers")


def test_auto_takes_the_first_that_answers(fake: Fake) -> None:
    fake("podman", "echo 4.3.1")
    fake("apptainer", "echo 1.4.5")
    assert engines.choose("auto")[0] == "podman"
    assert engines.choose("apptainer") == ("apptainer", "asked for in config.yaml")
    assert engines.choose("none")[0] == "none"


def test_for_other_nodes_auto_takes_an_image_that_is_a_file_or_none(fake: Fake) -> None:
    fake("docker", "echo 27")
    assert engines.choose("auto", shared=True)[0] == "none"
    fake("apptainer", "echo 1.4")
    assert engines.choose("auto", shared=True)[0] == "apptainer"


def test_an_engine_asked_for_by_name_must_answer(fake: Fake) -> None:
    fake("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    with pytest.raises(engines.NoEngine, match=r"container\.engine = docker.*Cannot connect.*\{engine: none\}"):
        engines.choose("docker")


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "make lock"),
        ("COPY {Env:[LOCK_HASH=1]}: write /var/tmp/layer: no space left on device", "the disk is full"),
        ("dial tcp: lookup registry: Temporary failure in name resolution", "container.base_image"),
        ("something new", "see the whole log above"),
    ],
)
def test_a_failed_build_shows_its_last_lines_and_what_to_do(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, says: str, advice: str
) -> None:
    monkeypatch.chdir(ROOT)
    fake("docker", f"for i in $(seq 50); do echo line $i; done; echo '{says}' >&2; exit 1")
    with pytest.raises(build.BuildFailed) as error:
        build.prepare("docker", "", base_image="x", build_args={}, image=None, version="0")
    told = str(error.value)
    assert says in told
    assert "line 50" in told
    assert "line 5\n" not in told
    assert advice in told


def test_a_failed_build_is_no_marker_and_one_error(fake: Fake, tmp_path: Path) -> None:
    fake("docker", '[ "$1" = info ] && echo 27.0 || { echo broken >&2; exit 3; }')
    settings = {"engine": "docker", "base_image": "b", "build_args": {}, "image": None}
    command = [sys.executable, "-m", "scalecard", "container", json.dumps(settings), "--output", str(tmp_path / "m")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "failed with status 3" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "m").exists()


def test_the_marker_names_the_image_by_id_and_its_size_base_and_lock(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    facts = {"Id": DIGEST, "Size": 5, "Config": {"Labels": {"scalecard.lock": build.lock_hash()}}}
    fake("docker", f"[ \"$1\" = image ] && echo '{json.dumps([facts])}'; exit 0")
    made = build.prepare("docker", "w", base_image="base:1", build_args={"A": "b"}, image=None, version="0")
    assert made == Marker(
        engine="docker", why="w", image=DIGEST, digest=DIGEST, base="base:1", lock=build.lock_hash(), size=5
    )


@pytest.mark.parametrize("wanted", ["auto", "docker"])
def test_a_base_image_that_cannot_be_fetched(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wanted: str
) -> None:
    script = "info) echo 27.0;; image) echo 'No such image' >&2; exit 1;; pull) echo 'no such host' >&2; exit 1"
    fake("docker", f"case $1 in {script};; *) exit 0;; esac")
    monkeypatch.chdir(ROOT)
    settings = {"engine": wanted, "base_image": "far:1", "build_args": {}, "image": None}
    monkeypatch.setattr(sys, "argv", ["scalecard", "container", json.dumps(settings), "--output", str(tmp_path / "m")])
    status, said = cli.main(), capsys.readouterr()
    if wanted == "docker":
        assert (status, (tmp_path / "m").exists()) == (2, False)
        assert "container.base_image" in said.err
    else:
        assert status == 0
        assert marker.read(tmp_path / "m").engine == "none"
        assert "`docker pull` failed" in marker.read(tmp_path / "m").why
        assert "The experiments run in the host's environment instead" in said.out


@pytest.mark.parametrize("wanted", ["auto", "docker"])
def test_an_engine_that_does_not_pass_the_gpus_on(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wanted: str
) -> None:
    facts = json.dumps([{"Id": DIGEST, "Size": 5}])
    no_gpus = "could not select device driver with capabilities: [[gpu]]"
    script = f"info) echo 27.0;; image) echo '{facts}';; run) echo '{no_gpus}' >&2; exit 125;; *) exit 0"
    fake("docker", f"case $1 in {script};; esac")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(launch, "has_gpus", lambda: True)
    settings = {"engine": wanted, "base_image": "b", "build_args": {}, "image": None}
    monkeypatch.setattr(sys, "argv", ["scalecard", "container", json.dumps(settings), "--output", str(tmp_path / "m")])
    status, said = cli.main(), capsys.readouterr()
    if wanted == "docker":
        assert (status, (tmp_path / "m").exists()) == (2, False)
        assert "NVIDIA container toolkit" in said.err
    else:
        assert status == 0
        assert marker.read(tmp_path / "m").engine == "none"
        assert no_gpus in marker.read(tmp_path / "m").why


@pytest.mark.parametrize(
    ("inspect", "gone"),
    [
        ("echo 'Error: No such image' >&2; exit 1", True),
        ("echo 'Error: inspecting object: x: image not known' >&2; exit 125", True),
        ("exit 0", False),
        ("echo 'cannot connect' >&2; exit 125", False),
    ],
)
def test_an_image_deleted_behind_our_back_is_noticed(fake: Fake, tmp_path: Path, inspect: str, gone: bool) -> None:
    fake("docker", inspect)
    path = tmp_path / "container.json"
    marker.write(path, IMAGE)
    assert marker.forget_if_gone(path) is gone
    assert path.exists() is not gone


def line(engine: str, *, gpus: bool = True) -> list[str]:
    made = Marker(engine=engine, why="", image="the-image", digest=DIGEST)
    project, data = Path("/project"), Path("/somewhere/data")
    return launch.command_line(
        made, ["python", "-m", "scalecard"], project=project, writable=[data, project / "results"], gpus=gpus
    )


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_what_docker_and_podman_are_told(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("SECRET_TOKEN", "hidden")
    told = " ".join(line(engine))
    assert "--volume /project:/project:ro" in told
    assert told.index("/project:/project:ro") < told.index("/project/results:/project/results:rw")
    assert "--volume /somewhere/data:/somewhere/data:rw" in told
    assert "--network none" in told
    assert "--ipc=host" in told
    assert "--ulimit memlock=-1:-1" in told
    assert ("--gpus all" if engine == "docker" else "--device nvidia.com/gpu=all") in told
    assert f"--user {os.getuid()}:{os.getgid()}" in told or "--userns=keep-id" in told
    assert "NCCL_DEBUG=INFO" in told
    assert "SECRET_TOKEN" not in told
    assert told.endswith("the-image python -m scalecard")
    assert "--pid=host" in told
    assert "gpu" not in " ".join(line(engine, gpus=False))


def test_what_apptainer_is_told() -> None:
    told = " ".join(line("apptainer"))
    assert told.startswith("apptainer exec --cleanenv --contain")
    assert "--nv" in told
    assert "--bind /project:/project:ro" in told
    assert "--nv" not in line("apptainer", gpus=False)


def test_without_an_engine_the_command_is_run_as_it_is() -> None:
    assert line("none") == ["python", "-m", "scalecard"]


def test_what_may_be_seen_of_the_hosts_environment() -> None:
    given: Mapping[str, str] = {"CUDA_VISIBLE_DEVICES": "0", "NCCL_IB_HCA": "x", "HOME": "/root", "AWS_SECRET": "s"}
    assert launch.allowed(given) == {"CUDA_VISIBLE_DEVICES": "0", "NCCL_IB_HCA": "x"}
