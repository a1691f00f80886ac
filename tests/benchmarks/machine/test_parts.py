"""Each piece of work passes its own check, and a wrong one does not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scalecard.benchmarks.machine import collectives, copies, matmul, node_benchmarks
from scalecard.benchmarks.machine.matmul import Products
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.hardware import links as hardware_links
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.links import Link
from scalecard.hardware.machine import Machine
from scalecard.measuring import proof
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import counted
from scalecard.measuring.stopping_rule import Rule
from scalecard.records.record import Record
from torch.utils._python_dispatch import TorchDispatchMode

SIZE = 4096


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 2) as opened:
        yield opened


def passes(subject: Subject) -> bool:
    checks = [*subject.prove()]
    assert checks
    return all(check.passed for check in checks)


@pytest.mark.parametrize("access", copies.PASSES)
def test_memory_is_read_written_and_copied_whole(devices: list[Device], access: str) -> None:
    subject = copies.subject_in_memory(0, access, SIZE, devices[0])
    assert passes(subject)
    assert all(count.passed for count in counted(subject, devices[0].synchronize))


@pytest.mark.parametrize(
    ("access", "name", "half"),
    [
        ("read", "amax", lambda real: lambda x, **more: real(x[: len(x) // 2], **more)),
        ("write", "fill_", lambda real: lambda x, value: real(x[: len(x) // 2], value)),
        ("copy", "copy_", lambda real: lambda x, y: real(x[: len(x) // 2], y[: len(y) // 2])),
    ],
)
def test_half_of_the_memory_is_noticed(
    devices: list[Device], monkeypatch: pytest.MonkeyPatch, access: str, name: str, half: Callable[..., Any]
) -> None:
    where = torch if name == "amax" else torch.Tensor
    real = getattr(where, name)
    monkeypatch.setattr(where, name, half(real))
    assert not passes(copies.subject_in_memory(0, access, SIZE, devices[0]))


def test_a_link_copies_all_bytes_from_its_source_to_its_target(
    devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link(*devices)
    assert link.peer is None, "no GPUs"
    assert passes(copies.subject_on_link(link, 0, SIZE))
    monkeypatch.setattr(hardware_links, "_copy", lambda there, here: there[1:].copy_(here[1:]))
    assert not passes(copies.subject_on_link(link, 0, SIZE))


@pytest.mark.parametrize("number", [2, 3, 8])
def test_each_device_sends_to_each_other_one_once(number: int) -> None:
    turns = [*copies.shifts(number)]
    pairs = [pair for turn in turns for pair in turn]
    assert sorted(pairs) == [(a, b) for a in range(number) for b in range(number) if a != b]
    for turn in turns:
        assert len({source for source, _ in turn}) == len({target for _, target in turn}) == number


def test_storage_is_read_whole_and_the_file_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with node_benchmarks.file_of(tmp_path, 3 * node_benchmarks.CHUNK + 5) as (path, checksum):
        assert path.stat().st_size == 3 * node_benchmarks.CHUNK + 5
        subject = node_benchmarks.reading(path, checksum)
        subject.work()
        assert passes(subject)
        assert [amount.counted for amount in counted(subject, lambda: None)] == [3 * node_benchmarks.CHUNK + 5]
        with path.open("r+b") as file:
            file.truncate(3 * node_benchmarks.CHUNK)
        assert not passes(subject)
    assert list(tmp_path.iterdir()) == []


class Noted:
    """A device that only notes what it is asked for."""

    def __init__(self, index: int, notes: list[str]) -> None:
        self.index, self.notes, self.torch = index, notes, torch.device("cpu")

    def submit(self, function: Callable[..., Any], *arguments: Any) -> SimpleNamespace:
        self.notes.append(f"{self.index} starts")
        return SimpleNamespace(result=lambda: function(*arguments))

    def synchronize(self) -> None:
        self.notes.append(f"{self.index} is waited for")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("serial", ["0 starts", "0 is waited for", "1 starts", "1 is waited for"]),
        ("concurrent", ["0 starts", "1 starts"]),
    ],
)
def test_every_device_multiplies_in_turn_or_at_once(mode: str, expected: list[str]) -> None:
    notes: list[str] = []
    devices: list[Any] = [Noted(0, notes), Noted(1, notes)]
    subject = matmul.subject(0, mode, devices, Products(8, 3, "float32"))
    subject.work()
    assert notes == expected
    assert passes(subject)


class Largest(TorchDispatchMode):
    """The most values of any tensor that is made meanwhile, on any device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        known = {tensor.untyped_storage().data_ptr() for tensor in args if isinstance(tensor, torch.Tensor)}
        if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in known:
            self.values = max(self.values, out.numel())
        return out


def on_three_ranks(ctx: RankContext) -> list[tuple[bool, bool, bool, int]]:
    """Of each collective, whether it passes, also if it is not run or spoils a value; and the largest tensor made."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "CHUNK", 100)
        for name in collectives.COLLECTIVES:
            subject: Any = collectives.subject(ctx, name, SIZE)
            work, given, result, wanted = subject.prove.args[2:]

            def spoil(work: Any = work, result: Any = result) -> None:
                work()
                result[-1] += 1

            right = all(count.passed for count in counted(subject, ctx.synchronize))
            with Largest() as largest:
                right = passes(subject) and right
            assert not any(tensor.any() for tensor in (given, result)), "zeros are timed"
            idle, spoilt = (
                all(check.passed for check in collectives._checks(ctx, name, wrong, given, result, wanted))
                for wrong in (lambda: None, spoil)
            )
            found.append((right, idle, spoilt, largest.values))
    return found


@pytest.mark.usefixtures("forked_ranks")
def test_collectives_bring_every_rank_what_they_should(machine: Machine) -> None:
    """A proof takes no more memory for a gigabyte than for a megabyte."""
    ranks = launch(on_three_ranks, layout=Layout(3), machine=machine)
    for index, name in enumerate(collectives.COLLECTIVES):
        right, idle, spoilt, largest = zip(*(found[index] for found in ranks), strict=True)
        assert right == (True,) * 3
        assert not all(idle), f"{name} that does nothing is noticed"
        assert not any(spoilt), f"a wrong value of {name} is noticed"
        assert max(largest) <= 3 * 100, "what three ranks have in a chunk"


def test_what_one_rank_does_not_add_or_two_exchange_is_seen() -> None:
    places = torch.arange(2000)
    whole = proof.total(places, range(4))
    numbers = [proof.number(places, rank) for rank in range(4)]
    assert bool((whole == sum(numbers)).all())
    for number in numbers:
        assert int(number.min()) >= 1
    assert bool((numbers[0] + numbers[3] != numbers[1] + numbers[2]).any())


def storage_of(data_dir: Path, rule: Rule) -> list[Record]:
    amounts = {"size": 1, "products": 1, "dtypes": [], "link_bytes": [], "load_seconds": 0.0, "memory_bytes": 4096}
    of: Any = SimpleNamespace(measure=rule, seed=0, data_dir=str(data_dir), **amounts)
    return list(node_benchmarks._storage(of))


def test_a_folder_for_images_that_is_not_there_is_made(tmp_path: Path, rule: Rule) -> None:
    records = storage_of(tmp_path / "not" / "there", rule)
    assert [(record.metric, record.status) for record in records] == [("free_space", "ok"), ("time", "ok")]


def test_a_folder_for_images_that_cannot_be_is_a_reason(tmp_path: Path, rule: Rule) -> None:
    (tmp_path / "file").write_text("")
    (record,) = storage_of(tmp_path / "file" / "data", rule)
    assert (record.status, record.note) == (
        "skipped",
        "no file of this size can be written to data_dir: Not a directory",
    )
