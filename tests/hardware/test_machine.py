"""What names a platform: hardware, driver and locked software, and nothing that changes with a reboot."""

from collections.abc import Callable
from dataclasses import asdict, replace

import pytest
from scalecard.hardware.machine import Machine, differences, from_facts, probe
from support.fake_nvml import A100, GTX, H100, Board, FakeNvml, box

Install = Callable[..., FakeNvml]
TWO = Machine(
    kind="cuda",
    num_devices=2,
    gpus=["NVIDIA GeForce RTX 4090"] * 2,
    gpu_uuid_hashes=["a", "b"],
    driver="570.1",
    cpu="AMD EPYC 7R13 Processor",
    cores=96,
    software="abc",
)


@pytest.mark.parametrize("change", [{"driver": "580.1"}, {"gpu_uuid_hashes": ["a", "c"]}, {"software": "def"}])
def test_the_slug_follows_hardware_driver_and_lock(change: dict[str, object]) -> None:
    assert TWO.slug.startswith("rtx4090x2-")
    assert replace(TWO, **change).slug != TWO.slug


def test_the_slug_does_not_follow_the_number_of_devices_used() -> None:
    assert replace(TWO, num_devices=1).slug == TWO.slug


@pytest.mark.parametrize(
    ("boards", "slug"), [(box(H100, 8), "h100x8-"), (box(A100, 4), "a100x4-"), (box(GTX, 2), "gtx1080x2-")]
)
def test_known_gpus_are_found_and_named(install_gpus: Install, boards: list[Board], slug: str) -> None:
    install_gpus(boards)
    found = probe()
    assert found.slug.startswith(slug)
    assert (found.kind, found.num_devices, found.emulated) == ("cuda", len(boards), False)
    assert found.device_name == boards[0].name
    assert f"{len(boards)} x {boards[0].name}" in found.describe()


def test_without_a_driver_the_cpu_is_the_machine(install_gpus: Install) -> None:
    install_gpus([])
    found = probe()
    assert (found.kind, found.emulated, found.driver) == ("cpu", True, None)
    assert found.device_name == found.cpu
    assert found.slug.endswith(f"-{found.cores}c-{found.fingerprint[:6]}")


def test_probing_again_finds_the_same_machine() -> None:
    assert probe() == probe()
    assert from_facts(asdict(probe())) == probe()


def test_a_swapped_gpu_or_driver_is_another_platform_and_a_reboot_is_not(install_gpus: Install) -> None:
    install_gpus(box(A100, 4))
    before = probe().slug
    install_gpus(list(reversed(box(A100, 4))))
    assert probe().slug == before
    install_gpus(box(A100, 4), driver="580.1")
    assert probe().slug != before
    swapped = box(A100, 4)
    swapped[2].uuid = "GPU-new"
    install_gpus(swapped)
    assert probe().slug != before


def test_nodes_of_one_kind_are_alike_and_another_kind_is_not(install_gpus: Install) -> None:
    install_gpus(box(A100, 4))
    label = probe().any_node()
    install_gpus([replace(board, uuid=f"GPU-{index}") for index, board in enumerate(box(A100, 4))])
    assert probe().fingerprint != label.fingerprint
    assert probe().as_specific_as(label).fingerprint == label.fingerprint
    assert probe().as_specific_as(probe()) == probe()
    install_gpus(box(A100, 4), driver="590.1")
    other = probe().as_specific_as(label)
    assert other.fingerprint != label.fingerprint
    assert differences(label, other) == "driver 580.65.06, now 590.1"
