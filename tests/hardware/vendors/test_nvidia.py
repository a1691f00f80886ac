"""GPUs that are lost, cut, or too new for their driver stop the workflow before it measures something else."""

import os
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from scalecard.hardware import vendors
from scalecard.hardware.machine import probe
from scalecard.hardware.vendors import notes, nvidia, problems
from scalecard.hardware.vendors.nvidia import nvml
from support.fake_nvml import A100, H100, Board, FakeNvml, box, cut

Install = Callable[..., FakeNvml]
MISMATCH = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH


@pytest.fixture(autouse=True)
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders in the place of /dev and of the PCI bus, and no Slurm."""
    (tmp_path / "dev").mkdir()
    monkeypatch.setattr(nvidia, "DEVICES", tmp_path / "dev")
    monkeypatch.setattr(nvidia, "PCI", tmp_path / "pci")
    monkeypatch.setattr(vendors, "AMD", tmp_path / "dev" / "kfd")
    monkeypatch.delenv("SLURM_GPUS_ON_NODE", raising=False)
    return tmp_path / "dev"


def put_nodes(folder: Path, count: int) -> None:
    for name in ["nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(count))]:
        (folder / name).touch()


def test_a_machine_whose_gpus_all_answer_has_no_problem(install_gpus: Install, devices: Path) -> None:
    install_gpus(box(H100, 8))
    put_nodes(devices, 8)
    assert problems() == notes() == []


@pytest.mark.parametrize("lost", [7, 2])
def test_a_lost_gpu_is_told_and_not_dropped(install_gpus: Install, devices: Path, lost: int) -> None:
    boards: list[Board | None] = [*box(H100, 8)]
    boards[lost] = None
    install_gpus(boards)
    put_nodes(devices, 8)
    (problem,) = problems()
    assert "/dev/nvidia* has 8" in problem
    assert "lists only 7" in problem


def test_slurm_gave_more_than_there_are(install_gpus: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install_gpus(box(H100, 3))
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    assert "SLURM_GPUS_ON_NODE is 4" in problems()[0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert "no GPU '3'" in problems()[0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert problems() == [], "somebody chose two of them"


def test_a_broken_driver_does_not_make_a_cpu_platform(
    install_gpus: Install, devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gpus(box(H100, 2), broken=MISMATCH)
    assert probe().kind == "cpu"
    assert problems() == [], "nothing here has a GPU"
    put_nodes(devices, 2)
    (problem,) = problems()
    assert "no NVIDIA driver answers: RM has detected an NVML/RM version mismatch." in problem
    assert "CUDA_VISIBLE_DEVICES=-1" in problem
    for wish in nvidia.HIDE_ALL:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", wish)
        assert problems() == []


def test_gpus_of_other_jobs_are_not_missed(
    install_gpus: Install, devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gpus(box(H100, 1))
    put_nodes(devices, 2)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "nvidia0")
    assert problems() == []


def test_a_driver_that_is_too_old_is_told_once_with_what_it_must_be(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gpus(box(H100, 2), driver="570.86.10")
    monkeypatch.setattr(nvidia, "version_of", lambda packages: "13.2.86")
    (problem,) = problems()
    for words in ("driver 570.86.10 supports CUDA 12", "needs CUDA 13", "580 or newer", "offline.md"):
        assert words in problem
    assert "in the image, by `container: {base_image: 'pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime'}`" in problem
    assert "on the host, by `make OWN_TORCH=1 PYTHON=/path/to/its/python`" in problem
    assert nvidia.problems(other_torch=True) == [], "it is asked where the other PyTorch is"
    assert "make lock" not in problem, "the lock has one PyTorch, for CUDA 13"
    with monkeypatch.context() as without_torch:
        without_torch.setattr(nvidia.importlib.util, "find_spec", lambda name: None)
        assert problems() == [problem], "a host without PyTorch measures in the image, which has the lock's"
    monkeypatch.setattr(nvidia, "version_of", lambda packages: "12.8.1")
    assert problems() == []

    def none(packages: object) -> str:
        raise FileNotFoundError("none of these packages is installed")

    monkeypatch.setattr(nvidia, "version_of", none)
    assert problems() == [], "a PyTorch without CUDA needs no driver"


def test_a_switch_that_makes_float32_something_else_is_refused(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    install_gpus(box(H100, 1))
    assert "unset it" in problems()[0]
    install_gpus([])
    assert problems() == [], "a CPU has no TF32"


def test_the_only_slice_of_a_card_is_measured_as_a_slice(install_gpus: Install) -> None:
    install_gpus([cut(box(A100, 1)[0], "1g.5gb")])
    found = probe()
    assert found.gpus == [f"{A100.name} MIG 1g.5gb"]
    assert found.slug.startswith("a100mig1g5gbx1-")
    with nvml.session() as (gpu,):
        assert gpu.memory_bytes == A100.memory // 8
    assert problems() == []


@pytest.mark.parametrize("visible", [None, "0", "0,1"])
def test_a_card_in_slices_must_be_chosen_from(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch, visible: str | None
) -> None:
    first, second = box(A100, 2)
    install_gpus([cut(first, "1g.5gb", "2g.10gb"), second])
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (problem,) = problems()
    assert f"GPU 0 ({A100.name})" in problem
    assert "MIG-0-" in problem
    assert "MIG-1-" in problem
    assert (second.uuid in problem) == (visible != "0")
    for choice in ("1", f"MIG-1-{first.uuid}"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", choice)
        assert problems() == []
    assert probe().gpus == [f"{A100.name} MIG 2g.10gb"]


def test_why_a_gpu_is_not_measured_is_told(install_gpus: Install, devices: Path) -> None:
    install_gpus([])
    assert notes() == []
    (devices / "kfd").touch()
    for name, kind in {"0000:01:00.0": "0x030200", "0000:01:00.1": "0x040300"}.items():
        card = nvidia.PCI / name
        card.mkdir(parents=True)
        (card / "vendor").write_text("0x10de\n")
        (card / "class").write_text(f"{kind}\n")
    on_pci, amd = notes()
    assert "1 NVIDIA GPU is on the PCI bus" in on_pci
    assert "AMD" in amd
    install_gpus(box(H100, 1))
    assert notes() == []


def test_where_the_drivers_library_is_missing_a_gpu_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, devices: Path
) -> None:
    monkeypatch.setattr(nvml, "NO_LIBRARY", "nvidia-ml-py is missing")
    assert problems() == [], "without a GPU it is not needed"
    put_nodes(devices, 1)
    (problem,) = problems()
    assert "nvidia-ml-py is missing" in problem
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert problems() == []
