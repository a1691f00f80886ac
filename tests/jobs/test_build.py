"""Building an image with a fake engine: the marker that comes of it, and what a failed build says."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scalecard.hardware.facts import locked_version
from scalecard.jobs.containers import build
from scalecard.jobs.containers.launch import Marker
from support.projects import ROOT

Fake = Callable[[str, str], None]
DIGEST = "sha256:" + "a" * 64


@pytest.fixture(autouse=True)
def project_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def prepare(engine: str = "docker", **changes: Any) -> Marker:
    wanted: Mapping[str, Any] = {"base_image": "base:1", "build_args": {"A": "b"}, "image": None, "packages": None}
    return build.prepare(engine, "why", {**wanted, **changes})


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "make lock"),
        ("COPY {Env:[LOCK_HASH=1]}: write /var/tmp/layer: no space left on device", "disk is full"),
        ("dial tcp: lookup registry: Temporary failure in name resolution", "container.base_image"),
        ("something new", "{engine: none}"),
    ],
)
def test_a_failed_build_shows_its_last_lines_and_what_to_do(fake_engine: Fake, says: str, advice: str) -> None:
    fake_engine("docker", f"for i in $(seq 50); do echo line $i; done; echo '{says}' >&2; exit 1")
    with pytest.raises(build.BuildFailed) as error:
        prepare()
    told = str(error.value)
    assert "status 1" in told
    assert says in told
    assert "line 50" in told
    assert "line 5\n" not in told
    assert advice in told.splitlines()[-1]


def test_the_marker_names_the_image_by_id_and_its_size_base_and_lock(fake_engine: Fake, tmp_path: Path) -> None:
    facts = {"Id": DIGEST, "Size": 5, "Config": {"Labels": {"scalecard.lock": build.file_hash(build.LOCK)}}}
    called = tmp_path / "called"
    fake_engine("docker", f'echo "$@" >> {called}; [ "$1" = image ] && echo \'{json.dumps([facts])}\'; exit 0')
    assert prepare() == Marker(
        engine="docker", why="why", image=DIGEST, digest=DIGEST, base="base:1", lock=build.file_hash(build.LOCK), size=5
    )
    (built,) = (line for line in called.read_text().splitlines() if line.startswith("build"))
    assert {"BASE_IMAGE=base:1", "A=b", f"LOCK_HASH={build.file_hash(build.LOCK)}"} <= set(built.split())
    assert {f"{name}={version}" for name, version in build.cuda_versions().items()} <= set(built.split())


def test_the_cuda_libraries_of_the_image_are_those_of_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "requirements.lock"
    lines = (
        "cuda-toolkit==13.9.9",
        "nvidia-cuda-runtime==13.2.86 ; x",
        "nvidia-cudnn-cu13==9.26.0.51",
        "torch==2.15.0",
    )
    lock.write_text("\n".join([*lines, "nvidia-nccl-cu13==2.30.7 \\", "    --hash=sha256:1"]))
    monkeypatch.setattr("scalecard.hardware.facts.LOCK", lock)
    expected = {"CUDA_VERSION": "13.2.86", "CUDNN_VERSION": "9.26.0.51", "NCCL_VERSION": "2.30.7"}
    assert build.cuda_versions() == {**expected, "OLDEST_CUDA": "13.0"}, "a driver for 13.0 runs 13.2, too"
    lock.write_text("torch==2.15.0+cpu")
    with pytest.raises(OSError, match=r"nvidia-cuda-runtime or .* is not in"):
        build.cuda_versions()


def test_the_readme_names_the_locked_versions() -> None:
    cuda, cudnn, nccl = (".".join(version.split(".")[:2]) for version in list(build.cuda_versions().values())[:3])
    readme = (ROOT / "README.md").read_text()
    assert f"CUDA {cuda}, cuDNN {cudnn}, NCCL {nccl}" in readme
    assert f"pip install snakemake=={locked_version(['snakemake'])} " in readme


def test_the_base_image_is_the_same_everywhere_and_pinned_by_its_digest() -> None:
    files = ("docker/Dockerfile", "docker/scalecard.def", "config.yaml")
    found = [re.findall(r"(?:BASE_IMAGE=|base_image: )(python\S+)", (ROOT / name).read_text()) for name in files]
    ((pinned,), *others) = found
    assert others == [[pinned]] * 2
    assert re.fullmatch(r"python@sha256:[0-9a-f]{64}", pinned)


def test_a_given_image_is_pulled_only_if_it_is_not_there(fake_engine: Fake, tmp_path: Path) -> None:
    facts, pulled = json.dumps([{"Id": "b" * 64, "Digest": DIGEST, "Size": 5}]), tmp_path / "pulled"
    have = f"[ $1 = pull ] && touch {pulled}; [ $3 = there@{DIGEST} -o -e {pulled} ]"
    fake_engine("podman", f"{have} && echo '{facts}' || {{ echo 'no such image' >&2; exit 1; }}")
    for name, is_pulled in (("there", False), ("elsewhere", True)):
        made = prepare("podman", image=f"{name}@{DIGEST}")
        assert (made.image, made.digest, made.base) == ("sha256:" + "b" * 64, DIGEST, None)
        assert pulled.exists() == is_pulled


def test_a_sif_file_is_used_as_it_is_and_must_exist(tmp_path: Path) -> None:
    sif = tmp_path / "own.sif"
    with pytest.raises(build.BuildFailed, match=r"container\.image = .*own\.sif"):
        prepare("apptainer", image=str(sif))
    sif.write_bytes(b"image")
    made = prepare("apptainer", image=str(sif))
    assert (made.image, made.size, made.base) == (str(sif), 5, None)


def test_the_password_of_a_proxy_is_not_shown(fake_engine: Fake, capfd: pytest.CaptureFixture[str]) -> None:
    proxy = "http://me:secret@proxy.example:3128"
    fake_engine("docker", f"[ $1 = image ] && exit 0; echo 'cannot reach {proxy}/x'; exit 1")
    with pytest.raises(build.BuildFailed) as error:
        prepare(build_args={"HTTPS_PROXY": proxy})
    shown = "".join(capfd.readouterr()) + str(error.value)
    assert "HTTPS_PROXY=http://***@proxy.example:3128" in shown
    assert "cannot reach http://***@proxy.example:3128/x" in str(error.value)
    assert "secret" not in shown


def test_where_no_package_of_the_distribution_can_be_had_the_image_is_built_without_any(
    fake_engine: Fake,
) -> None:
    fake_engine("rm", "exit 0")  # it would empty this machine's own lists
    fake_engine("apt-get", 'echo "$@"; [[ "$*" = *update* ]] || { echo "E: Unable to locate package" >&2; exit 100; }')
    script = ["bash", str(ROOT / "docker" / "distribution.sh")]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0
    assert "libibverbs1 ibverbs-providers" in done.stdout
    assert "install g++ libc6-dev" in done.stdout
    assert "warning: the image has no libibverbs" in done.stderr
    assert "warning: the image has no compiler" in done.stderr


@pytest.mark.parametrize("named", [True, False])
def test_packages_are_of_the_snapshot_of_debian_that_the_base_image_is_made_of(
    fake_engine: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    sources, used = tmp_path / "debian.sources", tmp_path / "used"
    snapshot, mirror = (
        "http://snapshot.debian.org/archive/debian/20250520T000000Z",
        "URIs: http://deb.debian.org/debian",
    )
    rest = "Suites: bookworm\nComponents: main\n"
    sources.write_text(f"Types: deb\n# {snapshot if named else 'of Debian'}\n{mirror}\n{rest}")
    monkeypatch.setenv("SOURCES", str(sources))
    fake_engine("rm", "exit 0")
    list_of = "${option#Dir::Etc::SourceList=}"
    fake_engine("apt-get", f'for option; do [[ $option != Dir::*List=* ]] || cat "{list_of}" >{used}; done; echo "$@"')
    done = subprocess.run(
        ["bash", str(ROOT / "docker" / "distribution.sh")], capture_output=True, text=True, check=True
    )
    calls = [line for line in done.stdout.splitlines() if " install " in line or line.endswith(" update")]
    assert len(calls) == 3
    for call in calls:
        assert ("Dir::Etc::SourceParts=-" in call) == named, "and from nowhere else"
        assert ("Acquire::Check-Valid-Until=false" in call) == named, "lists of then have expired"
    if named:
        assert used.read_text() == f"Types: deb\nURIs: {snapshot}\n{rest}"
        assert f"packages of the distribution: {snapshot}" in done.stdout
    else:
        assert not used.exists()
        assert "packages of the distribution: those of today" in done.stdout


def test_packages_are_those_of_today_if_the_snapshot_cannot_be_reached(
    fake_engine: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "debian.sources"
    sources.write_text(
        "Types: deb\n# http://snapshot.debian.org/archive/debian/1\nURIs: http://deb.debian.org/debian\n"
    )
    monkeypatch.setenv("SOURCES", str(sources))
    fake_engine("rm", "exit 0")
    fake_engine("apt-get", 'echo "$@"; [[ "$*" != *SourceList* ]]')
    script = ["bash", str(ROOT / "docker" / "distribution.sh")]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    tried, *others = [line for line in done.stdout.splitlines() if " install " in line or line.endswith(" update")]
    assert "SourceList" in tried
    assert [line.split("=20 ")[-1] for line in others][:1] == ["--quiet update"]
    assert not any("SourceList" in line for line in others)
    assert "cannot be reached: packages are those of today" in done.stderr
    assert "the image has no" not in done.stderr


@pytest.mark.parametrize("newest", ["3.12", "3.11", None])
def test_a_base_image_without_python_gets_its_distributions(
    fake_engine: Fake, tmp_path: Path, newest: str | None
) -> None:
    """As nvidia/cuda has none; Ubuntu's own is too old in some, and a newer one has another name."""
    folder = tmp_path / "bin"
    for name, script in {"python3": "exit 1", "rm": "exit 0", "ln": f'cp "$2" {folder}/python3'}.items():
        fake_engine(name, script)
    install = f"cp /bin/true {folder}/python{newest}; exit 0" if newest else ""
    fake_engine("apt-get", f'echo "$@"; case "$*" in *python{newest}-venv*) {install};; *python3.*) exit 100;; esac')
    script = ["bash", str(ROOT / "docker" / "distribution.sh")]
    done = subprocess.run(script, capture_output=True, text=True)
    tried = re.findall(r"install python3(\S*)-venv", done.stdout)
    names = ["", ".13", ".12", ".11"]
    assert tried == (names[:3] if newest == "3.12" else names)
    assert done.returncode == (0 if newest else 1)
    assert ("error: the base image has no Python 3.11 or newer" in done.stderr) == (newest is None)


def test_without_an_engine_nothing_is_built() -> None:
    assert prepare("none") == Marker(engine="none", why="why")
