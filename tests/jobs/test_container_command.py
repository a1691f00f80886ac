"""The command line that runs a command in an image: mounts, devices, network, user and variables."""

import itertools
import os
from pathlib import Path

import pytest
from scalecard.hardware import network
from scalecard.jobs.containers import launch
from scalecard.jobs.containers.marker import Marker

COMMAND = ["python", "-m", "scalecard"]


def line(engine: str, *, gpus: bool = True, online: bool = False) -> list[str]:
    made = Marker(engine=engine, why="", image="the-image", digest="sha256:1")
    project, data = Path("/project"), Path("/somewhere/data")
    writable = [data, project / "results"]
    return launch.command_line(made, COMMAND, project=project, writable=writable, gpus=gpus, online=online)


def options(engine: str, option: str, **changes: bool) -> list[str]:
    """The values of an option, in their order."""
    return [value for name, value in itertools.pairwise(line(engine, **changes)) if name == option]


@pytest.mark.parametrize(("engine", "mount"), [("docker", "--volume"), ("podman", "--volume"), ("apptainer", "--bind")])
def test_the_project_is_read_only_and_what_is_written_comes_after_it(engine: str, mount: str) -> None:
    first, *others = options(engine, mount)
    assert first == "/project:/project:ro"
    assert others[:2] == ["/somewhere/data:/somewhere/data:rw", "/project/results:/project/results:rw"]
    assert line(engine)[-4:] == ["the-image", *COMMAND]


@pytest.mark.parametrize(
    ("engine", "passes"),
    [("docker", "--gpus all"), ("podman", "--device nvidia.com/gpu=all"), ("apptainer", "--nv")],
)
def test_gpus_are_passed_on_where_there_are_some(engine: str, passes: str) -> None:
    assert passes in " ".join(line(engine))
    assert passes not in " ".join(line(engine, gpus=False))


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_there_is_no_network_but_between_nodes(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "VERBS", Path("/nowhere"))
    assert options(engine, "--network") == ["none"]
    assert options(engine, "--network", online=True) == ([] if engine == "apptainer" else ["host"])


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_nccl_gets_shared_and_locked_memory_and_nvml_the_hosts_process_numbers(engine: str) -> None:
    assert {"--ipc=host", "--pid=host"} <= set(line(engine))
    assert [limit.split("=")[0] for limit in options(engine, "--ulimit")] == ["memlock", "stack"]


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_files_belong_to_the_caller(engine: str) -> None:
    own = {f"{os.getuid()}:{os.getgid()}", "0:0"}  # root in a rootless engine is the caller
    assert "--userns=keep-id" in line(engine) or set(options(engine, "--user")) <= own


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_only_listed_variables_of_the_host_are_seen(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "SECRET_TOKEN"):
        monkeypatch.setenv(name, "told")
    variables = dict(value.split("=", 1) for value in options(engine, "--env"))
    assert {name for name, value in variables.items() if value == "told"} == {"NCCL_DEBUG", "CUDA_VISIBLE_DEVICES"}
    assert variables["HOME"] == "/tmp"
    assert variables["SCALECARD_IMAGE_DIGEST"] == "sha256:1"


def test_variables_of_nodes_and_nccl_are_listed() -> None:
    given = {"SCALECARD_RENDEZVOUS": "a:1", "NCCL_IB_HCA": "x", "HOME": "/root", "AWS_SECRET": "s"}
    assert launch.allowed(given) == {"SCALECARD_RENDEZVOUS": "a:1", "NCCL_IB_HCA": "x"}


def test_without_an_engine_the_command_is_run_as_it_is() -> None:
    assert line("none") == COMMAND


@pytest.mark.parametrize(
    ("said", "variables"),
    [
        ("c0ffee", {"SCALECARD_COMMIT": "c0ffee", "SCALECARD_DIRTY": "1"}),
        (OSError("git is not installed"), {"SCALECARD_NO_COMMIT": "git is not installed"}),
    ],
)
def test_the_hosts_commit_or_why_there_is_none_is_told(
    monkeypatch: pytest.MonkeyPatch, said: str | OSError, variables: dict[str, str]
) -> None:
    def git(*arguments: object, **options: object) -> str:
        if isinstance(said, OSError):
            raise said
        return said

    monkeypatch.setattr("scalecard.hardware.environment.git", git)
    given = dict(value.split("=", 1) for value in options("docker", "--env"))
    assert {name: value for name, value in given.items() if "COMMIT" in name or "DIRTY" in name} == variables
