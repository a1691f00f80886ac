"""Building an image with a fake engine: the marker that comes of it, and what a failed build says."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scalecard.jobs.containers import build
from scalecard.jobs.containers.engines import Marker
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
    facts = {"Id": DIGEST, "Size": 5, "Config": {"Labels": {"scalecard.lock": build.lock_hash()}}}
    called = tmp_path / "called"
    fake_engine("docker", f'echo "$@" >> {called}; [ "$1" = image ] && echo \'{json.dumps([facts])}\'; exit 0')
    assert prepare() == Marker(
        engine="docker", why="why", image=DIGEST, digest=DIGEST, base="base:1", lock=build.lock_hash(), size=5
    )
    (built,) = (line for line in called.read_text().splitlines() if line.startswith("build"))
    assert {"BASE_IMAGE=base:1", "A=b", f"LOCK_HASH={build.lock_hash()}"} <= set(built.split())


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


def test_without_an_engine_nothing_is_built() -> None:
    assert prepare("none") == Marker(engine="none", why="why")
