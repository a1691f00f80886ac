"""Who else uses the machine: told before measuring, refused with `strict`."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.hardware import host, vendors
from scalecard.measuring import telemetry
from support.fake_nvml import GIB, H100, FakeNvml, box

Install = Callable[..., FakeNvml]


@pytest.fixture(autouse=True)
def quiet_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cores_busy", lambda seconds: 0.0)
    monkeypatch.setattr(host, "free_shared_memory", lambda: 8 * GIB)


@pytest.mark.parametrize(("free", "told"), [(64 * 2**20, True), (GIB - 4096, True), (GIB, False), (None, False)])
def test_shared_memory_of_a_container_without_options_is_too_small(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch, free: int | None, told: bool
) -> None:
    install_gpus(box(H100, 2))
    monkeypatch.setattr(host, "free_shared_memory", lambda: free)
    found = telemetry.preflight(8, strict=True)
    assert len(found) == told
    for text in found:
        for words in ("/dev/shm", "1 GiB", "--shm-size=1g", "emptyDir", "medium: Memory"):
            assert words in text
    assert not told or free != 64 * 2**20 or "64 MiB free" in found[0]


def test_free_shared_memory_is_that_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(host, "SHARED_MEMORY", tmp_path)
    free = host.free_shared_memory()
    assert free is not None
    assert free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.05)
    monkeypatch.setattr(host, "SHARED_MEMORY", tmp_path / "none")
    assert host.free_shared_memory() is None


def test_others_on_the_gpus_are_told_with_what_they_use(install_gpus: Install) -> None:
    boards = box(H100, 2)
    boards[1].processes = [(1, 3 * GIB), (os.getpid(), GIB)]
    boards[0].utilisation, boards[1].exclusive = 40, True
    install_gpus(boards)
    busy, used, exclusive = telemetry.disturbances(cores=8)
    assert "GPU 0" in busy
    assert "40 %" in busy
    assert "GPU 1" in used
    assert "3072 MiB" in used
    assert "GPU 1" in exclusive
    assert "nvidia-smi -c DEFAULT" in exclusive


def test_strict_refuses_with_all_that_was_found(install_gpus: Install) -> None:
    boards = box(H100, 2)
    boards[0].utilisation, boards[1].processes = 40, [(1, GIB), (2, GIB)]
    install_gpus(boards)
    assert len(telemetry.preflight(8, strict=False)) == 2
    with pytest.raises(telemetry.Disturbed, match=r"strict = true.*GPU 0.*GPU 1"):
        telemetry.preflight(8, strict=True)


@pytest.mark.parametrize(("busy", "told"), [(3.0, True), (2.5, False)])
def test_a_cpu_is_busy_from_a_third_of_its_cores(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch, busy: float, told: bool
) -> None:
    install_gpus([])
    monkeypatch.setattr(host, "cores_busy", lambda seconds: busy)
    found = telemetry.disturbances(cores=8)
    assert [f"{busy:.1f} of 8 cores" in text for text in found] == [True] * told


def test_the_cpu_is_watched_for_long_enough_to_see_work_that_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler's slices take up to 0.1 s."""
    looks = list[float]()

    def watch(seconds: float) -> float:
        looks.append(seconds)
        return 0.0

    monkeypatch.setattr(host, "cores_busy", watch)
    telemetry.disturbances(cores=8)
    (look,) = looks
    assert 0.5 <= look <= 2


def test_a_desktop_is_named_and_allowed(install_gpus: Install) -> None:
    boards = box(H100, 2)
    boards[0].graphics, boards[1].processes = [(77, 300 * 2**20)], [(78, GIB)]
    boards[0].names = {77: "/usr/lib/xorg/Xorg vt2 -displayfd 3", 78: "python train.py"}
    install_gpus(boards)
    other, display = telemetry.preflight(8, strict=False)
    assert "another process used GPU 1" in other
    for words in ("Xorg", "GPU 0", "300 MiB"):
        assert words in display
    boards[1].processes = []
    assert telemetry.preflight(8, strict=True) == [display]
    with vendors.session() as (gpu, _):
        assert gpu.state(os.getpid().__eq__)["others_memory_bytes"] == 0


def test_a_gpu_that_is_not_measured_is_told_and_disturbs_nothing(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_gpus([])
    monkeypatch.setattr("scalecard.hardware.vendors.AMD", tmp_path)
    (told,) = telemetry.preflight(8, strict=True)
    assert "an AMD GPU is here" in told


def test_an_idle_machine_passes(install_gpus: Install) -> None:
    install_gpus(box(H100, 2))
    assert telemetry.preflight(8, strict=True) == []
