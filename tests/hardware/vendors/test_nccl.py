"""What keeps InfiniBand from being used is named, on a pretended /sys."""

import ctypes.util
import resource
from pathlib import Path

import pytest
from scalecard.hardware.vendors.nvidia import nccl

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06\n"


@pytest.fixture
def healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two adapters whose links are up, the closed driver with its peer module, and memory that may be locked."""
    for module, name in ((nccl, "ADAPTERS"), (nccl, "VERBS"), (nccl, "MODULES"), (nccl, "DRIVER")):
        monkeypatch.setattr(module, name, tmp_path / name)
    for adapter in ("mlx5_0", "mlx5_1"):
        port = tmp_path / "ADAPTERS" / adapter / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
    (tmp_path / "VERBS").mkdir()
    (tmp_path / "MODULES" / "nvidia_peermem").mkdir(parents=True)
    (tmp_path / "DRIVER").write_text(CLOSED)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: "libibverbs.so.1")
    return tmp_path


def test_a_network_that_is_used_as_it_could_be_needs_no_word(healthy: Path) -> None:
    assert list(nccl.why_slow()) == []


def test_a_link_that_is_down_is_named(healthy: Path) -> None:
    (healthy / "ADAPTERS" / "mlx5_1" / "ports" / "1" / "state").write_text("1: DOWN\n")
    assert list(nccl.why_slow()) == ["InfiniBand links that are not active: mlx5_1 port 1 (DOWN)"]


def test_a_container_without_the_devices_is_told(healthy: Path) -> None:
    (healthy / "VERBS").rmdir()
    assert list(nccl.why_slow()) == [f"{healthy / 'VERBS'} is missing here: NCCL uses TCP between nodes"]


def test_a_missing_library_is_told(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    assert list(nccl.why_slow()) == ["libibverbs is not installed: NCCL uses TCP between nodes"]


def test_memory_that_cannot_be_locked_is_told(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (8 * 2**20,) * 2)
    (told,) = list(nccl.why_slow())
    assert "8 MiB" in told
    assert "ulimit -l" in told


def test_a_missing_gpudirect_is_told_unless_the_driver_needs_no_module(healthy: Path) -> None:
    (healthy / "MODULES" / "nvidia_peermem").rmdir()
    assert "nvidia_peermem" in next(iter(nccl.why_slow()))
    (healthy / "DRIVER").write_text(OPEN)
    assert list(nccl.why_slow()) == []


def test_without_adapters_there_is_nothing_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "ADAPTERS", tmp_path / "none")
    assert list(nccl.why_slow()) == []
