"""The command line that runs a command in an image: mounts, devices, network, user, limits and variables."""

import itertools
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scalecard.hardware.vendors.nvidia import nccl
from scalecard.jobs.containers import inside, launch
from scalecard.jobs.containers.launch import Marker

Fake = Callable[[str, str], None]
COMMAND = ["python", "-m", "scalecard"]
ENGINES = ["docker", "podman", "apptainer"]
ROOTLESS = {"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}


@pytest.fixture(autouse=True)
def alone(fake_engine: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No InfiniBand, no file of NCCL's, and no engine of this machine is asked anything."""
    monkeypatch.setattr(nccl, "VERBS", Path("/nowhere"))
    monkeypatch.setattr(inside, "NCCL_CONF", Path("/nowhere"))
    monkeypatch.setattr(inside, "NCCL_TOPOLOGY", Path("/nowhere"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("NCCL_CONF_FILE", "NCCL_TOPO_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def docker(fake_engine: Fake) -> Callable[..., None]:
    """A Docker whose daemon says this about itself."""
    return lambda **facts: fake_engine("docker", f"echo '{json.dumps(facts)}'")


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is not root, has two groups, and may not raise the limit of locked memory."""
    limits = {resource.RLIMIT_MEMLOCK: (2**16, 2**26), resource.RLIMIT_STACK: (2**23, resource.RLIM_INFINITY)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1001)
    monkeypatch.setattr(os, "getgroups", lambda: [1001, 44])


def call(engine: str, *, gpus: bool = True, online: bool = False, project: str = "/project") -> launch.Call:
    made = Marker(engine=engine, why="", image="the-image", digest="sha256:1")
    folders = [Path("/somewhere/data"), Path(project, "results")]
    return launch.call(made, COMMAND, project=Path(project), writable=folders, gpus=gpus, online=online)


def line(engine: str, **changes: Any) -> list[str]:
    return call(engine, **changes).argv


def options(engine: str, option: str, **changes: Any) -> list[str]:
    """The values of an option, in their order."""
    return [value for name, value in itertools.pairwise(line(engine, **changes)) if name == option]


def variables(engine: str, **changes: Any) -> dict[str, str]:
    """What the process inside finds in its environment."""
    if engine == "apptainer":
        found = call(engine, **changes).environment.items()
        return {key.removeprefix("APPTAINERENV_"): value for key, value in found if key.startswith("APPTAINERENV_")}
    return dict(value.split("=", 1) for value in options(engine, "--env", **changes))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_project_is_read_only_and_what_is_written_comes_after_it(engine: str) -> None:
    first, *others = options(engine, "--mount")
    assert first == "type=bind,source=/project,destination=/project,ro"
    paths = ["/somewhere/data", "/project/results"]
    assert others[:2] == [f"type=bind,source={path},destination={path}" for path in paths]
    assert line(engine)[-4:] == ["the-image", *COMMAND]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_path_with_a_comma_is_one_field_of_its_mount(engine: str) -> None:
    assert options(engine, "--mount", project="/a,b")[0] == 'type=bind,"source=/a,b","destination=/a,b",ro'


@pytest.mark.parametrize(
    ("engine", "passes"),
    [("docker", "--gpus all"), ("podman", "--device nvidia.com/gpu=all"), ("apptainer", "--nv")],
)
def test_gpus_are_passed_on_where_there_are_some(engine: str, passes: str) -> None:
    assert passes in " ".join(line(engine))
    assert passes not in " ".join(line(engine, gpus=False))


def test_docker_with_cdi_gets_the_gpus_by_it(docker: Callable[..., None], tmp_path: Path) -> None:
    docker(DiscoveredDevices=[{"Source": "cdi", "ID": "nvidia.com/gpu=0"}])
    assert options("docker", "--device") == ["nvidia.com/gpu=all"]
    assert "--gpus" not in line("docker")
    docker(DiscoveredDevices=None, CDISpecDirs=[str(tmp_path)])
    assert options("docker", "--gpus") == ["all"], "no specification in the folder"
    (tmp_path / "nvidia.yaml").touch()
    assert options("docker", "--device") == ["nvidia.com/gpu=all"]


@pytest.mark.parametrize("engine", ENGINES)
def test_there_is_no_network_but_between_nodes(engine: str) -> None:
    assert options(engine, "--network") == ["none"]
    assert options(engine, "--network", online=True) == ([] if engine == "apptainer" else ["host"])


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_nccl_gets_shared_and_locked_memory_and_nvml_the_hosts_process_numbers(engine: str) -> None:
    assert "--pid=host" in line(engine)
    assert "--init" not in line(engine), "Podman refuses both"
    assert "--init" in line(engine, gpus=False)
    (size,) = (int(part.split("=")[1]) for part in line(engine) if part.startswith("--shm-size="))
    assert size > 2**30
    for changes in ({"gpus": True}, {"gpus": False, "online": True}):
        assert [limit.split("=")[0] for limit in options(engine, "--ulimit", **changes)] == ["memlock", "stack"]
    assert options(engine, "--ulimit", gpus=False) == []


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_nothing_is_allowed_that_a_measurement_does_not_need(engine: str) -> None:
    assert {"--cap-drop=ALL", "--read-only"} <= set(line(engine))
    assert options(engine, "--security-opt") == ["no-new-privileges", "label=disable"]
    assert not {"--ipc=host", "--privileged", "--cap-add"} & set(line(engine, online=True))


@pytest.mark.usefixtures("caller")
def test_a_rootless_engines_root_is_the_caller_and_it_raises_no_limit_beyond_its_own(docker: Any) -> None:
    docker(**ROOTLESS)
    assert options("docker", "--user") == options("podman", "--user") == ["0:0"]
    assert options("docker", "--ulimit") == []
    assert options("podman", "--ulimit") == [f"memlock={2**26}:{2**26}", f"stack={2**26}:{2**26}"]
    assert options("podman", "--group-add") == ["keep-groups"]


@pytest.mark.usefixtures("caller")
def test_dockers_own_daemon_runs_the_caller_with_all_groups_and_raises_the_limits(docker: Any) -> None:
    docker(SecurityOptions=["name=seccomp,profile=builtin"])
    assert options("docker", "--user") == ["1000:1001"]
    assert options("docker", "--group-add") == ["44"]
    assert options("docker", "--ulimit") == ["memlock=-1:-1", f"stack={2**26}:{2**26}"]


@pytest.mark.parametrize("engine", ENGINES)
def test_only_listed_variables_of_the_host_are_seen(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "TORCH_DIST_USE_NCCL2"}
    for name in (*listed, "SECRET_TOKEN"):
        monkeypatch.setenv(name, "told,twice")
    found = variables(engine)
    assert {name for name, value in found.items() if value == "told,twice"} == listed
    assert found["SCALECARD_IMAGE_DIGEST"] == "sha256:1"
    assert found["PYTHONPATH"] == "/project/workflow/src"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_home_is_a_folder_that_can_be_written(engine: str) -> None:
    assert options(engine, "--home") == ["/tmp"] if engine == "apptainer" else variables(engine)["HOME"] == "/tmp"


def test_apptainer_gets_no_mounts_and_variables_of_the_callers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = ("APPTAINERENV_LD_PRELOAD", "SINGULARITYENV_A", "APPTAINER_BIND", "SINGULARITY_BIND", "APPTAINER_MOUNT")
    for name in (*foreign, "APPTAINER_CACHEDIR"):
        monkeypatch.setenv(name, "own")
    found = call("apptainer").environment
    assert not {*foreign} & {*found}
    assert found["APPTAINER_CACHEDIR"] == "own", "says where, and not what"


@pytest.mark.parametrize("engine", ENGINES)
def test_without_network_no_interface_of_the_host_is_named(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_NET", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA"):
        monkeypatch.setenv(name, "ib0")
    named = {name for name, value in variables(engine).items() if value == "ib0"}
    assert named == {"NCCL_IB_HCA"}
    assert len([value for value in variables(engine, online=True).values() if value == "ib0"]) == 4


@pytest.mark.parametrize("engine", ENGINES)
def test_nccl_reads_its_files_inside_but_no_interface_in_them_where_there_is_none(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, everyones, topology = (tmp_path / name for name in (".nccl.conf", "nccl.conf", "topology.xml"))
    for path in (own, everyones, topology):
        path.touch()
    monkeypatch.setattr(inside, "NCCL_CONF", everyones)
    monkeypatch.setenv("NCCL_TOPO_FILE", str(topology))
    mounts = options(engine, "--mount", online=True)
    assert [m for m in mounts if m.endswith(",ro")][1:] == [
        f"type=bind,source={path},destination={path},ro" for path in (everyones, own, topology)
    ]
    found = variables(engine, online=True)
    assert (found["NCCL_CONF_FILE"], found["NCCL_TOPO_FILE"]) == (str(own), str(topology))
    assert "NCCL_SOCKET_IFNAME" not in found
    assert variables(engine)["NCCL_SOCKET_IFNAME"] == "lo", "whatever the files say"


def test_without_an_engine_the_command_is_run_as_it_is() -> None:
    assert call("none") == (COMMAND, os.environ)


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


@pytest.mark.parametrize("engine", ENGINES)
def test_of_a_workflow_that_is_anothers_module_the_code_is_mounted_too(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "PROJECT", Path("../scalecard"))
    code, own, *_ = options(engine, "--mount", project="/srv/other")
    assert code == "type=bind,source=/srv/scalecard,destination=/srv/scalecard,ro"
    assert own == "type=bind,source=/srv/other,destination=/srv/other,ro"
    assert variables(engine, project="/srv/other")["PYTHONPATH"] == "/srv/scalecard/workflow/src"


def test_a_host_without_pytorch_downloads_in_a_container_that_has_its_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called = list[list[str]]()
    monkeypatch.setattr(launch, "subprocess", SimpleNamespace(run=lambda argv, **_: called.append(argv)))
    made = Marker(engine="apptainer", why="", image="the-image")
    launch.fetch("auto", tmp_path / "data", made)
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    launch.fetch("auto", tmp_path / "data", made)
    launch.fetch("synthetic", tmp_path / "data", made)
    on_the_host, in_the_image = called
    download = ["-m", "scalecard", "fetch", "--data-dir", str(tmp_path / "data")]
    assert on_the_host[1:] == download
    assert in_the_image[-7:] == ["the-image", "python", *download]
    assert f"type=bind,source={tmp_path / 'data'},destination={tmp_path / 'data'}" in in_the_image
    assert "--network" not in in_the_image, "Apptainer's is then the host's"
