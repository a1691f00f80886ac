"""The project's image for real: built by Podman from the Dockerfile and the lock, used by the workflow, then as a .sif.

The image has a package on top that a model of the user's own imports, and the host lacks. The machine needs no image
registry: the base image is made from Debian's packages. What a machine without cgroup delegation needs is in this
folder, not in the project.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pretended_gpus import boxes
from scalecard.hardware.machine import probe
from scalecard.jobs.containers import build, launch
from scalecard.jobs.containers.launch import Marker
from support.projects import ROOT, SMOKE, completed, copy_project, planned, results_of, snakemake

FOLDER = ROOT / "tests" / "containers"
BASE = "localhost/scalecard-base:2"
NEEDED = ("podman", "mmdebstrap")
CONFIG = (*SMOKE, "engine.yaml")
HERE = probe().slug
MARKER = f"{HERE}/container.json"
RESULTS = {f"{HERE}/{name}.json" for name in ("async_timing", "allreduce")}
TARGETS = sorted(f"results/{result}" for result in RESULTS)
OF_MINE = f"results/{HERE}/strategies.json"
FREE = 32e9  # bytes; 31 GB are the most that these tests have been seen to take, with the image and the .sif
CDI = Path("/var/run/cdi/scalecard-pretended.json")  # where engines look for devices that they can give to containers
STORES = ("/var/tmp", tempfile.gettempdir())
LOCK = "einops==0.8.2 --hash=sha256:54058201ac7087911181bfec4af6091bb59380360f069276601256a76af08193\n"
MODEL = """
from einops.layers.torch import Rearrange
from torch import nn, ones, zeros
def model(): return nn.Sequential(Rearrange("b x y -> b (x y)"), nn.Linear(6, 4))
def batch(size, seed): return ones(size, 2, 3), zeros(size, 4)
loss = nn.MSELoss()
"""

OF_OWN_TORCH = """
import einops, torch, torchvision
from importlib.metadata import distributions
names = {found.metadata["Name"] for found in distributions()}
print(torch.__file__, sorted(name for name in names if name.startswith(("torch", "triton", "nvidia", "cuda"))))
"""

CUDA_INSIDE = """
import json, torch
from importlib.metadata import version
packages = {"CUDA": "nvidia-cuda-runtime", "CUDNN": "nvidia-cudnn-cu13", "NCCL": "nvidia-nccl-cu13"}
found = {f"{name}_VERSION": version(package) for name, package in packages.items()}
print(json.dumps({**found, "torch": torch.version.cuda}))
"""

pytestmark = [
    pytest.mark.container,
    pytest.mark.skipif(
        not all(map(shutil.which, NEEDED)),
        reason=f"needs {' and '.join(NEEDED)}: tests/containers/install.sh installs them on Debian 12, as root",
    ),
    pytest.mark.skipif(
        min(shutil.disk_usage(folder).free for folder in STORES) < FREE,
        reason=f"needs {FREE / 1e9:.0f} GB free in each of {' and '.join(STORES)}",
    ),
]


@pytest.fixture(scope="module")
def environment() -> Iterator[None]:
    """What this kind of machine needs for Podman and Apptainer to work at all."""
    own = {
        "CONTAINERS_CONF": str(FOLDER / "containers.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "APPTAINER_NO_PRIVS": "1",
        "APPTAINER_MKSQUASHFS_ARGS": "-comp zstd -Xcompression-level 1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            if name not in os.environ:
                patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, environment: None) -> Path:
    """A copy of the project in which three experiments have run in the image. Tests only read it."""
    folder = copy_project(tmp_path_factory.mktemp("container"))
    subprocess.run([FOLDER / "base.sh", BASE], check=True)
    (folder / "my.lock").write_text(LOCK)
    (folder / "my_model.py").write_text(MODEL)
    use(folder, "podman")
    completed(folder, *TARGETS, OF_MINE, *CONFIG)
    return folder


@pytest.fixture(scope="module")
def under_apptainer(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of that in which one experiment has run in the same image as a .sif. Tests only read it."""
    if not shutil.which("apptainer"):
        pytest.skip("needs apptainer: tests/containers/install.sh")
    folder = copy_of(built, tmp_path_factory.mktemp("apptainer"))
    use(folder, "apptainer")
    completed(folder, TARGETS[1], *CONFIG)
    return folder


@pytest.fixture
def pretended(built: Path, tmp_path: Path) -> Iterator[boxes.Box]:
    """Two pretended GPUs, with what a container needs of them declared as NVIDIA's own toolkit declares a driver."""
    if reason := boxes.why_not() or ("" if boxes.with_devices() else "needs root"):
        pytest.skip(reason)
    box = boxes.box(None, energy=False)
    packages = inside(built, "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    (tmp_path / "pretended.pth").write_text("import pretended_gpus")  # an image may have a sitecustomize.py of its own
    mounts = {
        boxes.libraries(): str(boxes.libraries()),
        boxes.HERE / "site" / "sitecustomize.py": f"{packages}/pretended_gpus.py",
        tmp_path / "pretended.pth": f"{packages}/pretended.pth",
    }
    variables = {**box.environment, "PRETEND_SHM": "/dev/shm"}
    edits = {
        "env": [f"{key}={value}" for key, value in variables.items() if key.startswith("PRETEND_")],
        "mounts": [{"hostPath": str(a), "containerPath": b, "options": ["ro", "bind"]} for a, b in mounts.items()],
    }
    declared = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": edits}]}
    CDI.parent.mkdir(exist_ok=True)
    CDI.write_text(json.dumps(declared))
    yield replace(box, variables={**box.variables, "PATH": f"{without_limits(tmp_path)}:{os.environ['PATH']}"})
    CDI.unlink()


def without_limits(folder: Path) -> Path:
    """A folder with a `podman` that raises no limits, which takes a right that this kind of machine lacks."""
    podman = folder / "bin" / "podman"
    podman.parent.mkdir()
    podman.write_text(
        "#!/bin/bash\n"
        "kept=()\n"
        'while (($#)); do if [ "$1" = --ulimit ]; then shift 2; else kept+=("$1"); shift; fi; done\n'
        f'exec {shutil.which("podman")} "${{kept[@]}}"\n'
    )
    podman.chmod(0o755)
    return podman.parent


def copy_of(project: Path, folder: Path) -> Path:
    """Copy a project with what it has measured; a .sif, which has gigabytes, is linked."""

    def copy(source: str, target: str) -> None:
        (os.link if source.endswith(".sif") else shutil.copy2)(source, target)

    return Path(shutil.copytree(project, folder / "project", symlinks=True, copy_function=copy))


def use(folder: Path, engine: str) -> None:
    (folder / "engine.yaml").write_text(
        f"container: {{engine: {engine}, base_image: '{BASE}', packages: my.lock}}\n"
        "workloads: {mine: {file: my_model.py, batch_size: 4}, stranger: null}\n"
        "experiments: {strategies: {scaling: [strong]}}\n"
    )


def marker_of(folder: Path) -> Marker:
    return launch.read_marker(folder / "results" / MARKER)


def inside(folder: Path, code: str, **variables: str) -> str:
    """What a Python program prints in the image."""
    launcher = [sys.executable, "-m", "scalecard.jobs.containers.launch", f"results/{MARKER}"]
    command = [*launcher, "--data", "data", "--writable", "results", "--", "python", "-c", code]
    environment = os.environ | {"PYTHONPATH": "workflow/src", "SECRET_TOKEN": "hidden", **variables}
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout


def assert_hardened(folder: Path) -> None:
    """Ask a running container for everything that it must not be able to do, and for what it must have."""
    code = (
        "import json, os, pathlib, tempfile\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "mounts = {m[1]: m for m in map(str.split, open('/proc/mounts'))}\n"
        "try: pathlib.Path('/opt/scalecard/new').write_text('x'); wrote = True\n"
        "except OSError: wrote = False\n"
        "shared = os.statvfs('/dev/shm')\n"
        "tempfile.NamedTemporaryFile(dir=os.path.expanduser('~')).write(b'x')\n"
        "print(json.dumps({\n"
        "    'capabilities': [int(status[f'Cap{kind}'], 16) for kind in ('Inh', 'Prm', 'Eff', 'Bnd', 'Amb')],\n"
        "    'no new privileges': int(status['NoNewPrivs']),\n"
        "    'root': [mounts['/'][3].split(',')[0], wrote],\n"
        "    'temporary': [mounts['/tmp'][2], sorted(os.listdir('/tmp')), os.path.expanduser('~')],\n"
        "    'shared memory': [mounts['/dev/shm'][2], shared.f_blocks * shared.f_frsize],\n"
        "}))"
    )
    found = json.loads(inside(folder, code))
    assert found["capabilities"] == [0, 0, 0, 0, 0]
    assert found["no new privileges"] == 1
    assert found["root"] == ["ro", False]
    kind, names, home = found["temporary"]
    assert (kind, home) == ("tmpfs", "/tmp")
    assert set(names) <= {"scalecard.lock", folder.relative_to("/tmp").parts[0]}, "nothing of the host's own"
    kind, size = found["shared memory"]
    assert kind == "tmpfs"
    assert size == pytest.approx(psutil.virtual_memory().total / 2, rel=0.01)


def test_the_digest_in_each_result_is_that_of_the_image_that_ran_it(built: Path) -> None:
    made, results = marker_of(built), results_of(built)
    assert (made.engine, made.base) == ("podman", BASE)
    assert made.size
    assert made.size < 7e9
    assert set(results) == {"async_timing", "allreduce", "strategies"}
    for result in results.values():
        found = result.environment
        assert (found["container"], found["container_engine"]) == (made.digest, "podman")
        assert (found["lock"], found["packages"]) == (made.lock, made.packages)


@pytest.mark.parametrize("project", ["built", "under_apptainer"])
def test_a_model_of_the_users_own_finds_its_packages_in_the_image(project: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(project)
    assert marker_of(folder).packages == build.file_hash(str(folder / "my.lock"))
    assert {record.case["workload"] for record in results_of(folder)["strategies"].records} == {"mine"}
    assert inside(folder, "import einops; print(einops.__version__)") == "0.8.2\n"


def test_without_the_image_the_package_that_is_missing_is_named_before_anything_runs(
    built: Path, tmp_path: Path
) -> None:
    folder = copy_of(built, tmp_path)
    use(folder, "none")
    done = snakemake(folder, "--dry-run", OF_MINE, *CONFIG)
    assert done.returncode
    assert "workloads.mine.file = my_model.py: line 2: ModuleNotFoundError: No module named 'einops'; " in done.stdout


def test_every_file_belongs_to_the_caller(built: Path) -> None:
    owners = {path.stat().st_uid for path in (built / "results").rglob("*")}
    assert owners == {os.getuid()}


def test_no_network_no_writing_to_the_project_and_no_host_environment_inside(built: Path, tmp_path: Path) -> None:
    folder = copy_of(built, tmp_path)
    code = (
        "import json, os, pathlib\n"
        "try: pathlib.Path('workflow/new').write_text('x'); wrote = True\n"
        "except OSError: wrote = False\n"
        "pathlib.Path('results/probe').write_text('x')\n"
        "print(json.dumps([os.listdir('/sys/class/net'), wrote, 'SECRET_TOKEN' in os.environ, os.getuid()]))"
    )
    assert json.loads(inside(folder, code)) == [["lo"], False, False, os.getuid()]
    assert (folder / "results" / "probe").read_text() == "x"


def test_the_container_is_allowed_nothing_that_a_measurement_does_not_need(built: Path) -> None:
    assert_hardened(built)


def test_it_is_the_cuda_container_that_its_labels_say(built: Path) -> None:
    (facts,) = json.loads(subprocess.check_output(["podman", "image", "inspect", str(marker_of(built).image)]))
    locked = build.cuda_versions()
    for name in ("cuda", "cudnn", "nccl"):
        assert facts["Labels"][f"scalecard.{name}"] == locked[f"{name.upper()}_VERSION"]
    assert f"NVIDIA_REQUIRE_CUDA=cuda>={locked['OLDEST_CUDA']}" in facts["Config"]["Env"]
    found = json.loads(inside(built, CUDA_INSIDE))
    assert locked["CUDA_VERSION"].startswith(f"{found.pop('torch')}.")
    assert {**found, "OLDEST_CUDA": locked["OLDEST_CUDA"]} == locked


@pytest.fixture(scope="module")
def own_torch(tmp_path_factory: pytest.TempPathFactory, environment: None) -> Path:
    """A copy of the project with an image whose base has a PyTorch for CUDA 12. Its lock has few packages."""
    folder = copy_project(tmp_path_factory.mktemp("own-torch"))
    lock = folder / "docker" / "requirements.lock"
    entries = lock.read_text().replace("\n    ", "\0").splitlines()
    kept = ("torch", "nvidia-", "numpy=", "pyyaml=")
    lock.write_text("\n".join(entry for entry in entries if entry.startswith(kept)).replace("\0", "\n    ") + "\n")
    subprocess.run([FOLDER / "base.sh", BASE], check=True)
    options = ("--tag", f"{BASE}-torch", "--build-arg", f"BASE={BASE}", "--file", FOLDER / "own_torch.Dockerfile")
    subprocess.run(["podman", "build", "--quiet", *options, tmp_path_factory.mktemp("context")], check=True)
    (folder / "my.lock").write_text(LOCK)
    container = f"container={{engine: podman, base_image: '{BASE}-torch', packages: my.lock}}"
    completed(folder, "container", *SMOKE, "--config", container, f"platform={HERE}")  # not named after this lock
    return folder


def test_the_pytorch_of_a_base_image_stays_and_the_image_is_of_its_cuda(own_torch: Path) -> None:
    (facts,) = json.loads(subprocess.check_output(["podman", "image", "inspect", str(marker_of(own_torch).image)]))
    assert [facts["Labels"][f"scalecard.{name}"] for name in ("cuda", "cudnn")] == ["12.8", "unknown"]
    assert "NVIDIA_REQUIRE_CUDA=cuda>=12.0" in facts["Config"]["Env"], "and no longer CUDA 13"
    found = inside(own_torch, OF_OWN_TORCH)
    assert (
        found == "/usr/local/lib/python3.11/dist-packages/torch/__init__.py ['nvidia-ml-py', 'torch', 'torchvision']\n"
    )


def test_the_image_has_what_nccl_needs_for_infiniband(built: Path) -> None:
    code = "import ctypes, ctypes.util; print(ctypes.util.find_library('ibverbs'), ctypes.CDLL('libmlx5.so.1'))"
    assert inside(built, code).startswith("libibverbs.so.1 ")


def test_a_container_starts_with_the_process_numbers_and_the_network_of_the_host(built: Path) -> None:
    """As with GPUs and over several nodes, less the GPUs and the limits, which this kind of machine cannot raise."""
    made = launch.call(marker_of(built), ["true"], project=built, writable=[], gpus=True, online=True)
    missing = {at + side for at, part in enumerate(made.argv) if part in ("--device", "--ulimit") for side in (0, 1)}
    subprocess.run([part for at, part in enumerate(made.argv) if at not in missing], check=True)
    assert "--pid=host" in made.argv


def test_editing_code_builds_nothing_and_editing_the_dockerfile_or_a_lock_builds(built: Path, tmp_path: Path) -> None:
    folder = copy_of(built, tmp_path)

    def planned_after_editing(name: str, *targets: str) -> set[str]:
        path = folder / name
        text = path.read_text()
        path.write_text(text + "\n# a comment\n")
        found = planned(folder, *targets, *CONFIG)
        path.write_text(text)
        return found

    module = "workflow/src/scalecard/experiments/async_timing.py"
    assert planned_after_editing(module, *TARGETS) == {f"{HERE}/async_timing.json"}
    for file in ("docker/Dockerfile", "my.lock"):
        assert planned_after_editing(file, *TARGETS) == {MARKER, *RESULTS}
    (marker_elsewhere,) = planned_after_editing("docker/requirements.lock", "container")
    assert marker_elsewhere.endswith("/container.json"), "of another platform, because the lock is part of it"
    assert planned(folder, *TARGETS, *CONFIG) == set()


def test_a_result_of_one_image_does_not_count_for_another(built: Path, tmp_path: Path) -> None:
    folder = copy_of(built, tmp_path)
    use(folder, "apptainer")
    assert planned(folder, *TARGETS, *CONFIG) == {MARKER, *RESULTS}


def test_the_same_image_as_a_sif_under_apptainer(under_apptainer: Path) -> None:
    made, found = marker_of(under_apptainer), results_of(under_apptainer)["async_timing"].environment
    assert (found["container"], found["container_engine"]) == (made.digest, "apptainer")
    assert Path(str(made.image)).name == "scalecard.sif"
    code = "import os, json; print(json.dumps([os.listdir('/sys/class/net'), os.environ['NCCL_ALGO']]))"
    assert json.loads(inside(under_apptainer, code, NCCL_ALGO="Ring,Tree")) == [["lo"], "Ring,Tree"]


def test_under_apptainer_it_is_allowed_no_more(
    under_apptainer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APPTAINER_NO_PRIVS", raising=False)  # the project drops them itself
    assert_hardened(under_apptainer)
    for name in ("APPTAINER_BIND", "SINGULARITY_BINDPATH", "APPTAINER_SCRATCH"):
        folder = f"{tmp_path}:/foreign" if "BIND" in name else "/foreign"
        assert inside(under_apptainer, "import os; print(os.path.exists('/foreign'))", **{name: folder}) == "False\n"
    found = inside(under_apptainer, "import os; print('FOREIGN' in os.environ)", APPTAINERENV_FOREIGN="1")
    assert found == "False\n"


def test_snakemakes_own_apptainer_support_runs_the_same_sif(under_apptainer: Path, tmp_path: Path) -> None:
    folder = copy_of(under_apptainer, tmp_path)
    use(folder, "none")
    completed(folder, TARGETS[1], "--sdm", "apptainer", *CONFIG)
    assert results_of(folder)["async_timing"].environment["container_engine"] == "apptainer"


def test_an_image_deleted_behind_our_back_is_built_again(built: Path, tmp_path: Path) -> None:
    """The image gets a second name, which is deleted: without a name it would be gone for the other tests, too."""
    folder, name = copy_of(built, tmp_path), "localhost/scalecard-to-be-deleted:1"
    made = marker_of(folder)
    subprocess.run(["podman", "tag", str(made.image), name], check=True)
    launch.write_marker(folder / "results" / MARKER, replace(made, image=name))
    assert not launch.forget_if_gone(folder / "results" / MARKER)
    subprocess.run(["podman", "rmi", name], check=True, capture_output=True)
    assert MARKER in planned(folder, f"results/{MARKER}", *CONFIG)


def test_gpus_are_measured_in_the_container(built: Path, pretended: boxes.Box, tmp_path: Path) -> None:
    folder, short = copy_of(built, tmp_path), str(boxes.HERE / "short.yaml")
    wanted = ("allreduce", "copy_cost", *CONFIG, short, "--config", "platform=pretended")
    done = boxes.run(pretended, [sys.executable, "-m", "snakemake", *wanted], timeout=900, folder=folder)
    assert done.returncode == 0, done.stdout[-6000:]
    for result in results_of(folder, "pretended").values():
        assert result.environment["container_engine"] == "podman"
        assert result.environment["machine"]["num_devices"] == 2
        assert not result.emulated
        assert result.count("ok")
        assert not result.count("failed")
