"""Which GPUs are there, what each one tells, and what it does not, with a fake NVML."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scalecard.hardware.environment import environment
from scalecard.hardware.facts import Missing, gpu_key
from scalecard.hardware.machine import probe
from scalecard.hardware.vendors.nvidia import nvml
from support.fake_nvml import A100, GIB, GTX, H100, Board, FakeNvml, box, linked

Install = Callable[..., FakeNvml]


def uuids() -> list[str]:
    with nvml.session() as gpus:
        return [gpu.uuid for gpu in gpus]


def details(missing: Missing) -> list[dict[str, Any]]:
    with nvml.session(missing) as gpus:
        return [gpu.facts(lambda key, *args, i=i: missing.ask(gpu_key(i, key), *args)) for i, gpu in enumerate(gpus)]


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("3,GPU-h100-5", ["GPU-h100-3", "GPU-h100-5"]),
        ("0,9,1", ["GPU-h100-0"]),  # as CUDA, which stops at what is no GPU
        ("GPU-h100-7, 2", ["GPU-h100-7", "GPU-h100-2"]),
        ("-1", []),
        ("", []),
    ],
)
def test_hidden_gpus_do_not_count(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch, visible: str, found: list[str]
) -> None:
    install_gpus(box(H100, 8))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert uuids() == found


def test_a_slice_of_a_gpu_goes_by_its_own_uuid(install_gpus: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    boards = [*box(H100, 1), *box(A100, 1)]
    boards[1].uuid = "MIG-1"
    install_gpus(boards)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    assert probe().gpus == [A100.name]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,MIG-2,MIG-1")
    assert probe().gpus == [H100.name], "a wrong name hides those after it"


@pytest.mark.parametrize("board", [H100, A100, GTX])
def test_details_are_those_of_the_board(install_gpus: Install, board: Board) -> None:
    install_gpus(box(board, 2))
    missing = Missing()
    found = details(missing)
    assert [detail["name"] for detail in found] == [board.name] * 2
    for detail in found:
        assert detail["memory_bytes"] == board.memory
        assert (detail["pcie_gen"], detail["pcie_gen_max"]) == board.pcie
        assert detail["nvlinks"] == board.nvlinks
        assert detail["power_limit_w"] == board.power_limit / 1000
        assert detail["ecc"] == board.ecc
    unsupported = {f"gpus.{i}.{key}" for i in (0, 1) for key in ("ecc", "ecc_corrected", "ecc_uncorrected")}
    assert set(missing.reasons) == (set() if board.ecc else unsupported)


def test_an_nvml_that_fails_half_way_costs_facts_and_keeps_the_others(install_gpus: Install) -> None:
    install_gpus(box(H100, 2), fail_after=20)
    missing = Missing()
    first, second = details(missing)
    assert first["memory_bytes"] == 80 * GIB
    assert second["ecc_uncorrected"] is None
    assert "lost" in missing.reasons["gpus.1.ecc_uncorrected"]


def test_without_a_driver_there_are_no_gpus_and_a_reason(install_gpus: Install) -> None:
    install_gpus([])
    missing = Missing()
    assert details(missing) == []
    assert list(missing.reasons) == ["gpus"]
    assert nvml.driver_version() is None


def test_the_topology_has_a_level_for_each_pair(install_gpus: Install) -> None:
    install_gpus(box(A100, 3))
    assert environment(probe())["topology"] == [[None, 20, 20], [20, None, 20], [20, 20, None]]


def test_others_are_told_from_ourselves(install_gpus: Install) -> None:
    boards = box(H100, 1)
    boards[0].processes = [(1, 3 * GIB), (os.getpid(), GIB)]
    install_gpus(boards)
    with nvml.session() as (gpu,):
        assert gpu.num_others(os.getpid().__eq__) == 1
        assert gpu.state(os.getpid().__eq__)["others_memory_bytes"] == 3 * GIB


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, []),
        (0x1, []),  # idle
        (0x4, ["power cap"]),
        (0x40 | 0x8, ["hardware slowdown", "thermal slowdown (hardware)"]),
    ],
)
def test_clock_event_reasons_that_a_reader_should_know(install_gpus: Install, bits: int, words: list[str]) -> None:
    boards = box(H100, 1)
    boards[0].reasons = bits
    install_gpus(boards)
    with nvml.session() as (gpu,):
        assert gpu.state(os.getpid().__eq__)["reasons"] == words


# Of a DGX-1 the first four V100s: one link to two of the others, two to the third. Cards with bridges stand in pairs.
CUBE = [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]]
BRIDGES = [[0, 12, 0, 0], [12, 0, 0, 0], [0, 0, 0, 12], [0, 0, 12, 0]]


@pytest.mark.parametrize("pairs", [CUBE, BRIDGES])
def test_nvlinks_are_counted_for_each_pair(install_gpus: Install, pairs: list[list[int]]) -> None:
    install_gpus(linked(A100, pairs))
    expected = [[None if a == b else count for b, count in enumerate(row)] for a, row in enumerate(pairs)]
    assert environment(probe())["nvlink_pairs"] == expected
    of_two = environment(replace(probe(), num_devices=2))["nvlink_pairs"]
    assert of_two == [row[:2] for row in expected[:2]], "of those that are used"


def test_through_switches_all_links_that_are_up_lead_to_every_gpu(install_gpus: Install) -> None:
    boards = box(H100, 3)
    boards[2].nvlinks = 17
    install_gpus(boards)
    assert environment(probe())["nvlink_pairs"] == [[None, 18, 18], [18, None, 18], [17, 17, None]]
    install_gpus(box(GTX, 2))
    assert environment(probe())["nvlink_pairs"] == [[None, 0], [0, None]]


def test_where_nvlinks_lead_may_not_be_told(install_gpus: Install) -> None:
    boards = box(A100, 3)
    boards[1].leads_to = [None] * 12
    install_gpus(boards)
    facts = environment(probe())
    assert facts["nvlink_pairs"] == [[None, None, 12], [None, None, None], [12, None, None]]
    assert facts["missing"]["gpus.1.nvlink_pairs"] == "the driver does not say where its NVLinks lead"
