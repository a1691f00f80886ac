"""The environment that goes into each result: of the devices used, with a reason for what is missing, and no names."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scalecard.hardware import environment as module
from scalecard.hardware.environment import environment, of_nodes
from scalecard.hardware.machine import Machine, probe
from support.fake_nvml import A100, GTX, FakeNvml, box
from support.projects import ROOT

Install = Callable[..., FakeNvml]


def test_only_the_gpus_that_are_used_are_described(install_gpus: Install) -> None:
    install_gpus(box(A100, 4))
    facts = environment(replace(probe(), num_devices=2))
    assert len(facts["gpus"]) == 2
    assert facts["topology"] == [[None, 20], [20, None]]
    assert facts["fingerprint"] == probe().fingerprint, "it is the same machine"


def test_what_a_gpu_does_not_tell_is_none_with_its_reason(install_gpus: Install) -> None:
    install_gpus(box(GTX, 2))
    facts = environment(probe())
    assert facts["gpus"][1]["ecc"] is None
    assert facts["missing"]["gpus.1.ecc"] == "Not Supported"
    assert facts["gpus"][1]["power_limit_w"] == 250


def test_without_a_driver_one_reason_says_why_there_are_no_gpus(install_gpus: Install) -> None:
    install_gpus([])
    facts = environment(probe())
    assert (facts["emulated"], facts["gpus"], facts["topology"]) == (True, [], [])
    assert [key for key in facts["missing"] if key.startswith("gpus")] == ["gpus"]


def test_it_says_how_float32_is_computed(machine: Machine) -> None:
    facts = environment(machine)
    assert (facts["float32_products"], facts["float32_convolutions"]) == ("float32", "float32")


def test_nodes_are_told_apart_by_what_differs_and_not_by_who_they_are(install_gpus: Install) -> None:
    install_gpus(box(A100, 2))
    first = environment(probe())
    boards = box(A100, 2)
    boards[1].uuid, boards[1].pcie = "GPU-other", (3, 4)
    install_gpus(boards, driver="590.1")
    second = {**environment(probe()), "host": "fedcba98", "ram_bytes": 1}
    one, other = of_nodes([first, second])
    assert one == {"host": first["host"], "differs": []}
    found = {(*fact["path"],): fact["value"] for fact in other["differs"]}
    assert other["host"] == "fedcba98"
    assert found == {("gpus", 1, "pcie_gen"): 3, ("machine", "driver"): "590.1", ("ram_bytes",): 1}


def test_it_names_no_host_and_no_user(machine: Machine) -> None:
    text = str(environment(machine))
    assert os.uname().nodename not in text or len(os.uname().nodename) < 4
    assert str(Path.home()) not in text


def test_in_a_container_the_launcher_says_image_engine_and_commit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"IMAGE_DIGEST": "sha256:1", "ENGINE": "podman", "COMMIT": "c0ffee", "DIRTY": "1"}
    for key, value in told.items():
        monkeypatch.setenv(f"SCALECARD_{key}", value)
    facts = environment(machine)
    assert [facts[key] for key in ("container", "container_engine", "commit", "dirty")] == [
        "sha256:1",
        "podman",
        "c0ffee",
        True,
    ]


def test_an_image_with_further_packages_says_which(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCALECARD_PACKAGES", raising=False)
    assert environment(machine)["packages"] is None
    monkeypatch.setenv("SCALECARD_PACKAGES", "04e40d0604fd")
    assert environment(machine)["packages"] == "04e40d0604fd"


def test_in_a_container_the_launcher_says_why_there_is_no_commit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCALECARD_COMMIT", raising=False)
    monkeypatch.setenv("SCALECARD_NO_COMMIT", "git is not installed on the host")
    facts = environment(machine)
    assert (facts["commit"], facts["dirty"]) == (None, None)
    assert facts["missing"]["commit"] == facts["missing"]["dirty"] == "git is not installed on the host"


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project in a folder of another repository, which has one commit."""
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)
    for name, value in {"NAME": "a", "EMAIL": "a@example.org"}.items():
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    (tmp_path / "theirs").touch()
    code = tmp_path / "project" / Path(module.__file__).relative_to(ROOT)
    code.parent.mkdir(parents=True)
    code.touch()
    for arguments in (["init", "-q"], ["add", "theirs"], ["commit", "-qm", "theirs"]):
        module.git(*arguments, folder=tmp_path)
    return tmp_path / "project"


def test_the_commit_of_a_repository_that_does_not_track_the_code_is_not_ours(unpacked: Path) -> None:
    for question in (module.commit, module.has_changes):
        with pytest.raises(OSError, match="does not track it"):
            question(unpacked)


def test_a_repository_that_tracks_the_code_says_its_commit_and_our_changes(unpacked: Path) -> None:
    module.git("add", ".", folder=unpacked)
    module.git("commit", "-qm", "ours", folder=unpacked)
    assert module.commit(unpacked) == module.git("rev-parse", "HEAD", folder=unpacked.parent)
    (unpacked.parent / "theirs").write_text("changed")
    assert not module.has_changes(unpacked)
    (unpacked / Path(module.__file__).relative_to(ROOT)).write_text("changed")
    assert module.has_changes(unpacked)


def test_outside_any_container_the_reason_is_kept(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SCALECARD_IMAGE_DIGEST", "SCALECARD_ENGINE", "APPTAINER_CONTAINER"):
        monkeypatch.delenv(variable, raising=False)
    facts = environment(machine)
    assert (facts["container"], facts["container_engine"]) == (None, "none")
    assert "container" in facts["missing"]
