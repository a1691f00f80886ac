"""Counters of errors before and after a load."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scalecard.benchmarks.machine import node_benchmarks
from scalecard.records.record import Record
from support.adapters import add_port
from support.fake_nvml import GTX, H100, OF_AN_H100, FakeNvml, box

Install = Callable[..., FakeNvml]

pytestmark = pytest.mark.usefixtures("ports")


def test_a_card_that_is_lost_costs_its_own_counters(install_gpus: Install) -> None:
    boards = box(H100, 2)
    fake = install_gpus(boards)
    with node_benchmarks.watched() as records:
        fake.boards[1] = None
        known = {(record.case["device"], record.case["counter"]) for record in records()}
    assert {name for device, name in known if device == 0} == {*OF_AN_H100, "XID"}
    assert {name for device, name in known if device == 1} == {"XID"}, "its last words"


def test_a_load_has_the_counters_of_before_and_of_after_it(install_gpus: Install, ports: Path) -> None:
    fake = install_gpus(box(H100, 2))
    port = add_port(ports, "400 Gb/sec (4X NDR)\n", symbol_error="7\n")
    with node_benchmarks.watched() as records:
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
    with node_benchmarks.watched() as records:
        told = {record.case["device"] for record in records() if record.case["counter"] == "XID"}
    assert told == {0}


def test_where_nothing_is_counted_a_record_says_so() -> None:
    with node_benchmarks.watched() as records:
        (record,) = records()
    assert (record.status, record.note) == ("skipped", "no GPU and no InfiniBand here that counts errors")
