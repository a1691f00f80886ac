"""container.packages: what is wrong with the file is one line, and the image gets what it names as a further layer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scalecard.jobs.config import InvalidConfig, resolve
from scalecard.jobs.containers import build
from scalecard.jobs.containers.launch import Marker
from support.blocks import CONFIG
from support.projects import ROOT

Fake = Callable[[str, str], None]
LOCK = f"einops==0.8.2 --hash=sha256:{'a' * 64}\n"
ID = "sha256:" + "b" * 64


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with docker/, of which the lock is a short one, and with a file of packages."""
    (tmp_path / "docker").mkdir()
    for path in (ROOT / "docker").glob("[!.]*.*"):
        (tmp_path / "docker" / path.name).write_bytes(b"" if path.suffix in (".lock", ".sif") else path.read_bytes())
    (tmp_path / "my.lock").write_text(LOCK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def commands(project: Path, fake_engine: Fake) -> Callable[..., list[str]]:
    """The builds that these engines are asked for, each with the files of its context, and what it makes."""
    called = project / "called"
    facts = json.dumps(
        [{"Id": ID, "Size": 5, "Config": {"Labels": {"scalecard.packages": build.file_hash("my.lock")}}}]
    )
    script = f"""
    [ "$1 $2" = "image inspect" ] && echo '{facts}'
    [ "$1" = build ] || exit 0
    echo "$(basename $0) $@ $(ls ${{@: -1}} | tr '\\n' ' ')" >> {called}
    [ -d "${{@: -1}}" ] || touch "${{@: -2:1}}"
    """

    def call(*engines: str, further: str | None = "my.lock") -> list[str]:
        for engine in engines:
            fake_engine(engine, "[ $1 = info -o $1 = version ] && echo 1; " + script)
        called.write_text("")
        wanted = {"base_image": "base:1", "build_args": {}, "image": None, "packages": further}
        made = build.prepare(engines[0], "why", wanted)
        assert isinstance(made, Marker)
        assert made.packages == build.file_hash("my.lock") or not further
        return called.read_text().splitlines()

    return call


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/tmp/my.lock", "must be relative to this folder"),
        ("other.lock", "no such file"),
        ("docker", "no such file"),
        ("l" * 900, "no such file"),
        ("../my.lock", "must lie in this folder or below, so that a copy of the folder has it"),
        ("link.lock", "must lie in this folder or below, so that a copy of the folder has it"),
        ("names.txt", f"must have a hash for every package; {build.HOW}"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line_with_its_key(project: Path, file: str, said: str) -> None:
    elsewhere = project.parent / "my.lock"
    elsewhere.write_text(LOCK)
    (project / "link.lock").symlink_to(elsewhere)
    (project / "names.txt").write_text("einops==0.8.2\n")
    assert list(build.package_problems({"packages": file, "image": None})) == [f"container.packages = {file}: {said}"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"packages": 3}, "container.packages: 3 is not of type 'string', 'null'; accepted: the path of a file of req"),
        ({"packages": "-r"}, "container.packages: '-r' does not match"),
        ({"packages": "other.lock"}, "container.packages = other.lock: no such file"),
        (
            {"packages": "my.lock", "image": "own.sif"},
            "container.packages = my.lock: not with container.image = own.sif, which is used as it is; put them into",
        ),
    ],
)
def test_the_configuration_is_refused_before_anything_is_built(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        resolve({**CONFIG, "container": {**CONFIG["container"], **changes}}, check=False)
    (_, line) = str(error.value).splitlines()
    assert line.strip().startswith(said)


def test_a_good_file_and_what_installs_it_are_inputs_and_without_one_nothing_is(project: Path) -> None:
    assert list(build.package_problems({"packages": "my.lock", "image": None})) == []
    found = build.package_inputs({"packages": "my.lock"})
    assert found == ["my.lock", "docker/packages.Dockerfile", "docker/packages.def", "docker/packages.sh"]
    assert build.package_inputs({"packages": None}) == []


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_docker_and_podman_build_a_second_image_from_the_first(
    commands: Callable[..., list[str]], project: Path, engine: str
) -> None:
    (alone,) = commands(engine, further=None)
    first, second = commands(engine)
    assert first == alone
    tag, number = f"scalecard:{build.file_hash(build.LOCK)}", build.file_hash("my.lock")
    assert f" --tag {tag}-{number} " in second
    assert f" --build-arg SCALECARD_IMAGE={tag} --build-arg PACKAGES_HASH={number} " in second
    assert second.endswith(" Dockerfile packages.lock packages.sh ")
    assert not list((project / "docker").glob(".packages-*")), "the context is gone"


def test_a_sif_is_made_from_the_second_image_where_docker_or_podman_answers(
    commands: Callable[..., list[str]], project: Path
) -> None:
    below, both, sif = commands("apptainer", "podman")
    assert below.startswith("podman build --tag scalecard:sif ")
    assert both.startswith(f"podman build --tag scalecard:sif-{build.file_hash('my.lock')} ")
    assert "docker-archive:" in sif
    assert " --disable-cache " in sif, "the archive is deleted, and its layers would stay in the cache for good"


def test_apptainer_alone_keeps_the_sif_below_and_builds_it_once(
    commands: Callable[..., list[str]], project: Path
) -> None:
    below, both = commands("apptainer")
    (kept,) = project.glob("docker/without-packages-*.sif")
    assert " docker/scalecard.def" in below
    assert f"--build-arg SCALECARD_IMAGE=docker/{kept.name} " in both
    assert " docker/packages.def" in both
    (project / "my.lock").write_text(LOCK + "# another\n")
    (again,) = commands("apptainer")
    assert " docker/packages.def" in again
    (project / "docker" / "install.sh").write_text("# another\n")
    assert len(commands("apptainer")) == 2
    assert len(list(project.glob("docker/without-packages-*.sif"))) == 1, "the old one is gone"


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        (
            "ERROR: Cannot install torch==2.0 because these package versions have conflicting dependencies.",
            "--constraint",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "the hashes of the index"),
        ("write /var/tmp/layer: no space left on device", "disk is full"),
    ],
)
def test_packages_that_cannot_be_installed_are_told_with_what_to_do(
    project: Path, fake_engine: Fake, says: str, advice: str
) -> None:
    fake_engine("podman", f"[[ $1 = build && $* = *.packages-* ]] && {{ echo '{says}' >&2; exit 1; }}; exit 0")
    with pytest.raises(build.BuildFailed) as error:
        build.prepare("podman", "", {"base_image": "b:1", "build_args": {}, "image": None, "packages": "my.lock"})
    assert says in str(error.value)
    assert advice in str(error.value).splitlines()[-1]
    assert "make lock" not in str(error.value), "that is for the lock of ScaleCard"
