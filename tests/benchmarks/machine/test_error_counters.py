"""Counters of errors, of GPUs by a fake NVML and of InfiniBand ports on a pretended /sys."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.benchmarks.machine.node_benchmarks import error_counts, link_rates
from support.adapters import add_port
from support.fake_nvml import GTX, H100, OF_AN_H100, FakeNvml, box

Install = Callable[..., FakeNvml]

pytestmark = pytest.mark.usefixtures("ports")


def test_an_h100_tells_every_counter_and_its_links_are_added_up(install_gpus: Install) -> None:
    boards = box(H100, 2)
    boards[1].errors = {name: place for place, name in enumerate(OF_AN_H100, start=1)}
    install_gpus(boards)
    found = error_counts()
    assert {name: found[("device", 0), name] for name in OF_AN_H100} == dict.fromkeys(OF_AN_H100, 0)
    assert [found[("device", 1), name] for name in OF_AN_H100] == [1, 2, 3, 4, 5 * 18, 6 * 18]


def test_what_a_card_does_not_count_is_left_out(install_gpus: Install) -> None:
    install_gpus(box(GTX, 1))
    assert error_counts() == {(("device", 0), "PCIe replays"): 0}


def test_a_port_tells_its_counters_and_its_rate(ports: Path) -> None:
    add_port(ports, "400 Gb/sec (4X NDR)\n", symbol_error="7\n", link_downed="0\n", port_xmit_discards="n/a\n")
    place = ("adapter", "mlx5_0 port 1")
    assert error_counts() == {(place, "symbol errors"): 7, (place, "link downed"): 0}
    assert link_rates() == {"mlx5_0 port 1": 50e9}
