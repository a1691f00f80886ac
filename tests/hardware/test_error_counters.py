"""Counters of errors, of GPUs by a fake NVML and of InfiniBand ports on a pretended /sys."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_nvml import GTX, H100, FakeNvml, box
from scalecard.hardware import error_counters, interconnect
from scalecard.parts import errors
from scalecard.records.record import Record

Install = Callable[..., FakeNvml]
OF_AN_H100 = (
    "ECC corrected",
    "ECC uncorrected",
    "rows remapped",
    "PCIe replays",
    "NVLink replays",
    "NVLink CRC errors",
)


@pytest.fixture(autouse=True)
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No InfiniBand, unless a test makes some."""
    monkeypatch.setattr(interconnect, "ADAPTERS", tmp_path)
    return tmp_path


def add_port(folder: Path, rate: str, **counters: str) -> Path:
    port = folder / "mlx5_0" / "ports" / "1"
    (port / "counters").mkdir(parents=True)
    (port / "rate").write_text(rate)
    for name, value in counters.items():
        (port / "counters" / name).write_text(value)
    return port


def test_an_h100_tells_every_counter_and_its_links_are_added_up(install_gpus: Install) -> None:
    boards = box(H100, 2)
    boards[1].errors = {name: place for place, name in enumerate(OF_AN_H100, start=1)}
    install_gpus(boards)
    found = error_counters.read()
    assert {name: found[("device", 0), name] for name in OF_AN_H100} == dict.fromkeys(OF_AN_H100, 0)
    assert [found[("device", 1), name] for name in OF_AN_H100] == [1, 2, 3, 4, 5 * 18, 6 * 18]


def test_what_a_card_does_not_count_is_left_out(install_gpus: Install) -> None:
    install_gpus(box(GTX, 1))
    assert error_counters.read() == {(("device", 0), "PCIe replays"): 0}


def test_a_card_that_is_lost_costs_its_own_counters(install_gpus: Install) -> None:
    boards = box(H100, 2)
    fake = install_gpus(boards)
    with errors.watched() as records:
        fake.boards[1] = None
        known = {(record.case["device"], record.case["counter"]) for record in records()}
    assert {name for device, name in known if device == 0} == {*OF_AN_H100, "XID"}
    assert {name for device, name in known if device == 1} == {"XID"}, "its last words"


def test_a_port_tells_its_counters_and_its_rate(ports: Path) -> None:
    add_port(ports, "400 Gb/sec (4X NDR)\n", symbol_error="7\n", link_downed="0\n", port_xmit_discards="n/a\n")
    place = ("adapter", "mlx5_0 port 1")
    assert error_counters.read() == {(place, "symbol errors"): 7, (place, "link downed"): 0}
    assert error_counters.link_rates() == {"mlx5_0 port 1": 50e9}


def test_a_load_has_the_counters_of_before_and_of_after_it(install_gpus: Install, ports: Path) -> None:
    fake = install_gpus(box(H100, 2))
    port = add_port(ports, "400 Gb/sec (4X NDR)\n", symbol_error="7\n")
    with errors.watched() as records:
        fake.boards[0].errors["ECC corrected"] = 3
        (port / "counters" / "symbol_error").write_text("12\n")
        fake.xids += [1, 1]
        found = {(*_place(record), record.case["counter"]): record.samples for record in records()}
    assert found["device", 0, "ECC corrected"] == [[0.0, 3.0]]
    assert found["device", 1, "ECC corrected"] == [[0.0, 0.0]]
    assert found["adapter", "mlx5_0 port 1", "symbol errors"] == [[7.0, 12.0]]
    assert (found["device", 0, "XID"], found["device", 1, "XID"]) == ([[0.0, 0.0]], [[0.0, 2.0]])
    assert fake.freed == "events"


def _place(record: Record) -> tuple[str, object]:
    kind = "adapter" if "adapter" in record.case else "device"
    return kind, record.case[kind]


def test_cards_that_do_not_tell_of_xids_have_no_count_of_them(install_gpus: Install) -> None:
    install_gpus([*box(H100, 1), *box(GTX, 1)])
    with errors.watched() as records:
        told = {record.case["device"] for record in records() if record.case["counter"] == "XID"}
    assert told == {0}


def test_where_nothing_is_counted_a_record_says_so() -> None:
    with errors.watched() as records:
        (record,) = records()
    assert (record.status, record.note) == ("skipped", "no GPU and no InfiniBand here that counts errors")
