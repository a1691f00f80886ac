"""The project's image for real: built by Podman from the Dockerfile and the lock, used by the workflow, then as a .sif.

The machine needs no image registry: the base image is made from Debian's packages. What a machine without cgroup
delegation needs is in tests/containers, not in the project.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import copy_project, snakemake
from scalecard import machine as machines
from scalecard import schema
from scalecard.containers import marker

HERE = Path(__file__).parent / "containers"
BASE = "localhost/scalecard-base:1"
NEEDED = ("podman", "mmdebstrap")
SMOKE = ("--configfile", "tests/smoke.yaml", "podman.yaml")
SLUG = machines.probe().slug
TARGETS = [f"results/{SLUG}/{name}.json" for name in ("async_timing", "allreduce")]

pytestmark = [
    pytest.mark.skipif(
        not all(map(shutil.which, NEEDED)),
        reason=f"needs {' and '.join(NEEDED)}: tests/containers/install.sh installs them on Debian 12, as root",
    ),
    pytest.mark.timeout(2400),
]


@pytest.fixture(scope="module")
def environment() -> None:
    """What this kind of machine needs for Podman and Apptainer to work at all."""
    os.environ.setdefault("CONTAINERS_CONF", str(HERE / "containers.conf"))
    os.environ.setdefault("BUILDAH_ISOLATION", "chroot")
    os.environ.setdefault("APPTAINER_NO_PRIVS", "1")
    os.environ.setdefault("APPTAINER_MKSQUASHFS_ARGS", "-comp zstd -Xcompression-level 1")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, environment: None) -> Path:
    """A copy of the project in which two experiments have run in the image."""
    folder = copy_project(tmp_path_factory.mktemp("container"))
    subprocess.run([HERE / "base.sh", BASE], check=True)
    use(folder, "podman")
    done = snakemake(folder, *TARGETS, *SMOKE, timeout=2000)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "experiments run in podman: asked for in config.yaml" in done.stdout
    return folder


def use(folder: Path, engine: str) -> None:
    (folder / "podman.yaml").write_text(f"container: {{engine: {engine}, base_image: '{BASE}'}}\n")


def planned(folder: Path) -> str:
    """What a dry run would do for the two experiments."""
    done = snakemake(folder, *TARGETS, "-n", *SMOKE)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def inside(folder: Path, code: str) -> str:
    """What a Python program prints in the image."""
    launcher = [sys.executable, "-m", "scalecard.containers.launch", f"results/{SLUG}/container.json"]
    command = [*launcher, "--data", "data", "--writable", "results", "--", "python", "-c", code]
    environment = os.environ | {"PYTHONPATH": "workflow/src", "SECRET_TOKEN": "hidden"}
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout


def test_the_digest_in_each_result_is_that_of_the_image_that_ran_it(built: Path) -> None:
    made = marker.read(built / "results" / SLUG / "container.json")
    assert made.engine == "podman"
    assert made.base == BASE
    assert made.size
    assert made.size < 7e9
    for target in TARGETS:
        found = schema.load(built / target).environment
        assert (found["container"], found["container_engine"]) == (made.digest, "podman")
        assert found["lock"] == made.lock


def test_every_file_belongs_to_the_caller(built: Path) -> None:
    owners = {path.stat().st_uid for path in (built / "results").rglob("*")}
    assert owners == {os.getuid()}


def test_no_network_no_writing_to_the_project_and_no_host_environment_inside(built: Path) -> None:
    code = (
        "import json, os, pathlib\n"
        "try: pathlib.Path('workflow/new').write_text('x'); wrote = True\n"
        "except OSError: wrote = False\n"
        "pathlib.Path('results/probe').write_text('x')\n"
        "print(json.dumps([os.listdir('/sys/class/net'), wrote, 'SECRET_TOKEN' in os.environ, os.getuid()]))"
    )
    assert json.loads(inside(built, code)) == [["lo"], False, False, os.getuid()]
    assert (built / "results" / "probe").read_text() == "x"


def test_editing_code_builds_nothing_and_editing_the_dockerfile_or_the_lock_builds(built: Path) -> None:
    module = built / "workflow" / "src" / "scalecard" / "experiments" / "async_timing.py"
    module.write_text(module.read_text() + "\n# a comment\n")
    after_code = planned(built)
    assert "rule async_timing" in after_code
    assert "rule container" not in after_code
    for name in ("Dockerfile", "requirements.lock"):
        path = built / "docker" / name
        text = path.read_text()
        path.write_text(text + "\n# a comment\n")
        assert "rule container" in snakemake(built, "container", "-n", *SMOKE).stdout
        path.write_text(text)
    assert "rule container" not in planned(built)


def test_the_same_image_as_a_sif_under_apptainer(built: Path) -> None:
    if not shutil.which("apptainer"):
        pytest.skip("needs apptainer: tests/containers/install.sh")
    use(built, "apptainer")
    assert "rule async_timing" in planned(built), "a result of one image does not count for another"
    done = snakemake(built, TARGETS[0], *SMOKE, timeout=2000)
    assert done.returncode == 0, done.stdout[-6000:]
    made, found = marker.read(built / "results" / SLUG / "container.json"), schema.load(built / TARGETS[0])
    assert (found.environment["container"], found.environment["container_engine"]) == (made.digest, "apptainer")
    assert Path(str(made.image)).name == "scalecard.sif"
    assert json.loads(inside(built, "import os, json; print(json.dumps(os.listdir('/sys/class/net')))")) == ["lo"]


def test_snakemakes_own_apptainer_support_runs_the_same_sif(built: Path) -> None:
    if not (built / "docker" / "scalecard.sif").exists():
        pytest.skip("needs the .sif of the test before, and so apptainer")
    use(built, "none")
    done = snakemake(built, TARGETS[0], "--sdm", "apptainer", *SMOKE, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:]
    assert schema.load(built / TARGETS[0]).environment["container_engine"] == "apptainer"


def test_an_image_deleted_behind_our_back_is_built_again(built: Path) -> None:
    use(built, "podman")
    snakemake(built, f"results/{SLUG}/container.json", *SMOKE, timeout=2000)
    made = marker.read(built / "results" / SLUG / "container.json")
    subprocess.run(["podman", "rmi", "--force", str(made.image)], check=True, capture_output=True)
    told = planned(built)
    assert "is gone: it is made again" in told
    assert "rule container" in told
