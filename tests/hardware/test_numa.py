"""Processes run next to the GPUs that they drive, and where they could before afterwards."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from scalecard.hardware import devices, host, vendors
from scalecard.hardware.environment import environment
from scalecard.hardware.machine import probe
from support.fake_nvml import H100, FakeNvml, box

Put = Callable[[int, str, str], None]
ALL = sorted(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="needs two cores")


@pytest.fixture
def put(install_gpus: Callable[..., FakeNvml], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Put:
    """Two GPUs, and what the kernel says of each: its NUMA node and the cores there."""
    install_gpus(box(H100, 2))
    monkeypatch.setattr(host, "PCI", tmp_path)
    monkeypatch.setattr(host, "FEWEST_CORES", 1)

    def write(index: int, node: str, cores: str) -> None:
        folder = tmp_path / f"ffff:{0x1A + index:02x}:00.0"
        folder.mkdir()
        (folder / "numa_node").write_text(f"{node}\n")
        (folder / "local_cpulist").write_text(f"{cores}\n")

    return write


def test_a_process_runs_next_to_its_gpus_meanwhile(put: Put) -> None:
    put(0, "0", f"{ALL[0]},4000-4003")
    put(1, "1", f"{ALL[1]}")
    inside: list[set[int]] = []
    goes_on = threading.Event()
    thread = threading.Thread(target=lambda: (goes_on.wait(), inside.append(os.sched_getaffinity(0))))
    thread.start()
    with host.on(host.cores_of([0])):
        assert os.sched_getaffinity(0) == {ALL[0]}
        goes_on.set()
        thread.join()
    assert inside == [{ALL[0]}], "threads that were there before as well"
    assert sorted(os.sched_getaffinity(0)) == ALL
    with host.on(host.cores_of([0, 1])):
        assert os.sched_getaffinity(0) == set(ALL[:2])


def test_there_are_no_more_threads_than_cores_meanwhile(put: Put) -> None:
    put(0, "0", f"{ALL[0]}")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with devices.near([0]):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_two_gpus_of_one_node_share_its_cores(put: Put) -> None:
    for index in range(2):
        put(index, "0", f"{ALL[0]}")
    with host.on(host.cores_of([0, 1])):
        assert os.sched_getaffinity(0) == {ALL[0]}


@pytest.mark.parametrize("cores", ["", "4000-4003", None])
def test_without_cores_next_to_a_gpu_it_stays(put: Put, cores: str | None) -> None:
    put(0, "0", f"{ALL[0]}")
    if cores is not None:
        put(1, "0", cores)
    with host.on(host.cores_of([0, 1])):
        assert sorted(os.sched_getaffinity(0)) == ALL


def test_nobody_is_bound_to_too_few_cores(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "FEWEST_CORES", 2)
    put(0, "0", f"{ALL[0]}")
    with host.on(host.cores_of([0])):
        assert sorted(os.sched_getaffinity(0)) == ALL
    assert "too few" in environment(probe())["missing"]["gpus.0.cores"]


def test_the_result_says_where_each_gpu_is_and_which_cores_are_next_to_it(put: Put) -> None:
    put(0, "3", f"{ALL[0]}-{ALL[1]},4000")
    put(1, "-1", f"{ALL[1]}")
    first, second = (facts := environment(probe()))["gpus"]
    assert (first["numa_node"], first["cores"]) == (3, f"{ALL[0]}-{ALL[1]}" if ALL[1] == ALL[0] + 1 else first["cores"])
    assert (second["numa_node"], second["cores"]) == (None, f"{ALL[1]}")
    assert "no NUMA node" in facts["missing"]["gpus.1.numa_node"]
    with vendors.session() as (gpu, _):
        assert host.cores_near(gpu) == ALL[:2]
