"""Planted faults are each found, named and advised once; healthy boxes get no alert."""

from dataclasses import replace
from typing import Any

import pytest
from scalecard.analysis.health.alerts import alerts
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from support.health_boxes import Box

H100, A100, RTX = "NVIDIA H100 80GB HBM3", "NVIDIA A100 80GB PCIe", "NVIDIA GeForce RTX 4090"
BRIDGES = [[0, 12, 0, 0], [12, 0, 0, 0], [0, 0, 0, 12], [0, 0, 12, 0]]
ONE_BRIDGE = [[0, 12, 0, 0], [12, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
# A DGX-1 with eight V100s, as `nvidia-smi topo -m` shows it: every GPU has six links, to four of the others.
DGX_1 = [
    [0, 1, 1, 2, 2, 0, 0, 0],
    [1, 0, 2, 1, 0, 2, 0, 0],
    [1, 2, 0, 2, 0, 0, 1, 0],
    [2, 1, 2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 1, 1, 2],
    [0, 2, 0, 0, 1, 0, 2, 1],
    [0, 0, 1, 0, 1, 2, 0, 2],
    [0, 0, 0, 1, 2, 1, 2, 0],
]


@pytest.mark.parametrize(
    "box",
    [
        Box(gpu=A100, count=4, links=BRIDGES),
        Box(gpu=A100, count=4, links=ONE_BRIDGE),
        Box(gpu="Tesla V100-SXM2-16GB", count=8, links=DGX_1),
        Box(gpu=RTX, count=2, peer=False),
        Box(gpu=RTX, count=4, peer=False, nccl_paths={"SHM": 8}),
        Box(gpu=H100, switched=18, count=16),
        Box(gpu=H100, switched=18, nodes=16, adapters=8, nccl_paths={"NET/IB/GDRDMA": 16, "P2P": 64}),
        Box(gpu=H100, switched=18, nodes=2, nccl_paths={"NET/Socket": 4}),  # there is nothing but Ethernet
        Box(count=1, emulated=True),
        Box(count=4, emulated=True),
    ],
)
def test_a_healthy_box_gets_no_alert(box: Box) -> None:
    assert [alert.text for alert in alerts(box.result())] == []


def _nodes(**faults: Any) -> Box:
    """Four nodes, with faults on the last."""
    return Box(switched=18, nodes=4, adapters=faults.get("adapters", 0), at={3: Box(switched=18, **faults)})


FAULTS = {
    "one slow GPU": (Box(switched=18, speed={3: 0.6}), "GPU 3", "power limit", ("odd one out",)),
    "one slow GPU of two": (Box(gpu=RTX, count=2, speed={1: 0.8}), "GPU 1", "power limit", ("odd one out",)),
    "slow memory": (Box(switched=18, memory={6: 0.8}), "GPU 6", "ROW_REMAPPER", ("odd one out", "low")),
    "a half-speed pair": (Box(switched=18, pairs={(2, 5): 0.5}), "GPU 2 and GPU 5", "nvlink -e", ("odd one out",)),
    "a half-speed bridge": (
        Box(gpu=A100, count=4, links=BRIDGES, pairs={(2, 3): 0.5}),
        "GPU 2 and GPU 3",
        "nvlink -e",
        ("odd one out",),
    ),
    "the only pair": (
        Box(gpu=A100, count=2, links=[[0, 12], [12, 0]], pairs={(0, 1): 0.5}),
        "GPU 0 and GPU 1",
        "nvlink -e",
        ("low",),
    ),
    "all links of a GPU": (
        Box(switched=18, pairs={(min(4, b), max(4, b)): 0.5 for b in range(8) if b != 4}),
        "GPU 4",
        "nvlink -e",
        ("odd one out",),
    ),
    "a slow PCIe pair": (Box(gpu=RTX, count=4, pairs={(0, 3): 0.5}), "GPU 0 and GPU 3", "ACS", ("odd one out",)),
    "x8 instead of x16": (Box(switched=18, slots={1: (5, 8)}), "GPU 1", "reseat", ("low",)),
    "x8 without NVLink": (Box(gpu=RTX, count=4, slots={1: (4, 8)}), "GPU 1", "reseat", ("low",)),
    "generation 3 instead of 5": (Box(switched=18, slots={7: (3, 16)}), "GPU 7", "BIOS", ("low",)),
    "a single GPU at x4": (Box(gpu=RTX, count=1, slots={0: (4, 4)}), "GPU 0", "reseat", ("low",)),
    "a hot GPU": (Box(switched=18, hot={5}), "GPU 5", "airflow", ("slowed down",)),
    "a single hot GPU": (Box(count=1, hot={0}), "GPU 0", "airflow", ("slowed down",)),
    "ECC errors": (Box(switched=18, grown={(2, "ECC corrected"): 7}), "GPU 2", "ROW_REMAPPER", ("errors",)),
    "an XID": (Box(switched=18, grown={(2, "XID"): 1, (2, "ECC corrected"): 1}), "GPU 2", "dmesg", ("errors",)),
    "a lost GPU": (Box(switched=18, lost={6}), "GPU 6", "power-cycle", ("errors",)),
    "a slow GPU of one node": (_nodes(speed={2: 0.7}), "node 3's GPU 2", "power limit", ("odd one out",)),
    "a node whose GPUs are slow": (
        _nodes(speed=dict.fromkeys(range(8), 0.7)),
        "8 of 8, as node 3's GPU 0",
        "power limit",
        ("odd one out",),
    ),
    "a half-speed pair of one node": (
        _nodes(pairs={(2, 5): 0.5}),
        "node 3's GPU 2 and GPU 5",
        "nvlink -e",
        ("odd one out",),
    ),
    "x8 instead of x16 on one node": (_nodes(slots={1: (5, 8)}), "node 3's GPU 1", "reseat", ("low",)),
    "a GPU lost on one node": (_nodes(lost={6}), "node 3's GPU 6", "power-cycle", ("errors",)),
    "a hot GPU of one node": (_nodes(hot={5}), "node 3's GPU 5", "airflow", ("slowed down",)),
    "ECC errors on one node": (_nodes(grown={(2, "ECC corrected"): 7}), "node 3's GPU 2", "ROW_REMAPPER", ("errors",)),
    "a bad cable": (
        _nodes(adapters=2, grown={("mlx5_1 port 1", "symbol errors"): 5000}),
        "node 3's mlx5_1 port 1",
        "cable",
        ("errors",),
    ),
    "a slow port of one node": (_nodes(adapters=2, adapter_gbit=200), "mlx5_0 port 1, line rate", "ibstat", ("low",)),
    "a slow node": (
        Box(switched=18, nodes=8, nodes_speed={3: 0.5}, adapters=2, nccl_paths={"NET/IB/GDRDMA": 8}),
        "node 3",
        "ibstat",
        ("odd one out",),
    ),
    "a socket": (
        Box(switched=18, nodes=2, adapters=2, nccl_paths={"NET/Socket": 4}),
        "NCCL",
        "NCCL_IB_DISABLE",
        ("low",),
    ),
    "no GPUDirect": (
        Box(switched=18, nodes=2, adapters=2, nccl_paths={"NET/IB": 4}),
        "NCCL",
        "nvidia_peermem",
        ("low",),
    ),
    "no peer access": (Box(switched=18, count=4, peer=False), "GPU", "ACS", ("low",)),
    "a full disk": (Box(count=1, free_bytes=2**30), "free space in data_dir", "df -h", ("low",)),
    "a slow worker": (Box(count=4, emulated=True, speed={2: 0.7}), "worker 2", "governor", ("odd one out",)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_alert_that_names_it_and_says_what_to_look_at(fault: str) -> None:
    box, named, advice, words = FAULTS[fault]
    (alert, *more) = alerts(box.result())
    assert [other.text for other in more] == []
    assert named in alert.what
    assert alert.verdict in words
    assert advice in alert.advice


def slower(result: Result, share: float, **case: Any) -> Result:
    """The same with a share of the rate where a case has these values; tuples are several of them."""

    def hit(record: Record) -> bool:
        return all(record.case.get(axis) in (own if isinstance(own, tuple) else (own,)) for axis, own in case.items())

    slow = [[[seconds / share for seconds in own] for own in record.samples] for record in result.records]
    pairs = zip(result.records, slow, strict=True)
    return replace(result, records=[replace(one, samples=own) if hit(one) else one for one, own in pairs])


TO_DEVICE: Case = {"part": "host link", "direction": "to device"}


def near_two_cpus() -> Result:
    """GPUs 0 to 3 near NUMA node 0, 4 to 7 near node 1."""
    result = Box(switched=18).result()
    gpus = [{**gpu, "numa_node": number // 4} for number, gpu in enumerate(result.environment["gpus"])]
    return replace(result, environment={**result.environment, "gpus": gpus})


def test_a_slow_way_to_one_gpu_names_the_direction_and_the_numa_node() -> None:
    (alert,) = alerts(slower(near_two_cpus(), 0.5, **TO_DEVICE, device=5))
    assert alert.what == "GPU 5: its link to the host (NUMA node 1), to device only"
    (both,) = alerts(slower(near_two_cpus(), 0.5, part="host link", device=5))
    assert both.what == "GPU 5: its link to the host (NUMA node 1)"


def test_all_gpus_near_one_numa_node_are_one_alert_that_names_it() -> None:
    (alert,) = alerts(slower(near_two_cpus(), 0.5, **TO_DEVICE, device=(4, 5, 6, 7)))
    assert alert.what.startswith("all 4 GPUs of NUMA node 1, as GPU 4: ")
    assert alert.what.endswith(", to device only")
    three = alerts(slower(near_two_cpus(), 0.5, **TO_DEVICE, device=(4, 5, 6)))
    assert [each.what[:5] for each in three] == ["GPU 4", "GPU 5", "GPU 6"], "the link of GPU 7 is sound"


def test_what_shows_on_eight_devices_only_is_said_to_show_there_only() -> None:
    (alert,) = alerts(slower(Box(switched=18).result(), 0.4, part="collective", devices=8))
    assert alert.what.startswith("on 8 devices only, while fewer are normal, all-reduce on 8 devices")
    (everywhere,) = alerts(slower(Box(switched=18).result(), 0.4, part="collective"))
    assert "only" not in everywhere.what
