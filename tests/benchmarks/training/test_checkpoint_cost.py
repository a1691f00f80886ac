"""Checkpoints: what is saved comes back, what does not is noticed, and nothing is left on the storage."""

import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scalecard.benchmarks.training import checkpoint_cost
from scalecard.benchmarks.training.run_group import Group
from scalecard.benchmarks.training.strategy import References
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.stopping_rule import Rule
from scalecard.parallel import saving
from scalecard.parallel.saving import InParts, OneFile, Started
from scalecard.records.record import Record
from scalecard.workloads.recipe import Recipe
from scalecard.workloads.workload import built_in
from support.lone_rank import LoneRank
from torch.distributed.checkpoint import state_dict_saver

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyTorch, that there are no ranks
Wrong = Callable[[pytest.MonkeyPatch], None]
TOY = replace(built_in("toy", seed=0, batch_size=4, lr=0.01), recipe=Recipe("adamw"))
WAYS = ("one file", "in parts")


@pytest.fixture
def measure(rule: Rule, tmp_path: Path) -> Callable[..., list[Record]]:
    """The records of one rank, which saves to a folder of its own."""

    def measured(data_dir: Path = tmp_path / "data") -> list[Record]:
        rank: Any = LoneRank()
        references, few = References(torch.device("cpu"), 1), replace(rule, max_rounds=6)
        group = Group(rank, [rank], references, TOY, {"workload": "toy"}, ("strong",), few, 4)
        return list(checkpoint_cost.records(group, str(data_dir)))

    return measured


def status(records: list[Record]) -> dict[tuple[str, str], str]:
    return {(record.metric, record.text("saving")): record.status for record in records}


def test_every_way_is_proven_by_what_is_loaded_and_leaves_nothing(
    measure: Callable[..., list[Record]], tmp_path: Path
) -> None:
    left_by_a_killed_run = tmp_path / "data" / checkpoint_cost.NAME / "one-file"
    left_by_a_killed_run.mkdir(parents=True)
    records = measure()
    assert {one.status for one in records} == {"ok"}
    assert set(status(records)) == {
        *((metric, way) for metric in ("save_time", "restore_time", "checkpoint_size") for way in WAYS),
        *(("steps_time", way) for way in ("none", "asynchronous")),
        ("checkpoint_size", "asynchronous"),
    }
    checks = {check.name for record in records for check in record.checks}
    assert {"loaded after a checkpoint", "missing of a checkpoint's size", "written by the thread that trains"} < checks
    none, beside = (one for one in records if one.metric == "steps_time")
    assert none.case["steps"] == beside.case["steps"]
    assert {count.name: count.counted for count in beside.work} == {count.name: count.counted for count in none.work}
    whole = sum(tensor.nbytes for tensor in TOY.network(torch.device("cpu")).parameters())
    assert all(one.median >= 3 * whole for one in records if one.unit == "B"), "with two moments of each"
    assert list((tmp_path / "data").iterdir()) == []


def forget_the_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim.AdamW, "load_state_dict", lambda *_, **__: None)


def save_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What training has become meanwhile."""

    class Late(Started):
        def __init__(self, checkpoint: InParts) -> None:
            self.checkpoint = checkpoint

        def wait(self) -> bool:
            self.checkpoint.save()
            return True

    monkeypatch.setattr(InParts, "start", lambda self: Late(self))


def save_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And let training wait."""

    def start(self: InParts) -> Started:
        writer, done = saving._Writer(self.folder), Future[None]()
        state_dict_saver.save(self._state(), storage_writer=writer)
        done.set_result(None)
        return Started(done, writer)

    monkeypatch.setattr(InParts, "start", start)


def save_parameters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneFile, "save", lambda self: torch.save({}, self.folder / "checkpoint.pt"))
    monkeypatch.setattr(OneFile, "load", lambda self: None)


@pytest.mark.parametrize(
    ("wrong", "failed"),
    [
        (forget_the_optimizer, {("save_time", "one file"), ("restore_time", "one file")}),
        (save_later, {("steps_time", "asynchronous")}),
        (save_at_once, {("steps_time", "asynchronous")}),
        (save_parameters_alone, {("save_time", "one file"), ("restore_time", "one file")}),
    ],
)
def test_what_is_not_saved_or_not_beside_training_is_not_timed(
    wrong: Wrong, failed: set[tuple[str, str]], measure: Callable[..., list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch)
    assert {key for key, found in status(measure()).items() if found == "failed"} == failed


def test_without_room_nothing_is_saved(
    measure: Callable[..., list[Record]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (record,) = measure(tmp_path / "file")
    assert (record.status, record.metric) == ("skipped", "save_time")
    assert record.note.startswith("data_dir has room for 0 GiB, and checkpoints need")
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(free=1024))
    (record,) = measure()
    assert record.note.startswith("data_dir has room for 9.54e-07 GiB")
    assert list((tmp_path / "data").iterdir()) == []


def test_one_file_is_on_the_storage_before_it_counts_as_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, own = list[str](), os.fsync

    def fsync(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        own(number)

    monkeypatch.setattr(os, "fsync", fsync)
    model, rank = torch.nn.Linear(2, 2), LoneRank()
    checkpoint = OneFile(model, torch.optim.AdamW(model.parameters()), tmp_path, rank)  # type: ignore[arg-type]
    checkpoint.save()
    assert synced == [str(tmp_path / "checkpoint.pt")]
    rank.leads = False
    checkpoint.save()
    assert len(synced) == 1, "another rank writes nothing"


def test_a_file_that_cannot_be_written_is_an_error_of_every_rank(tmp_path: Path) -> None:
    """The first rank's, which all of them get; DCP's own is one that nobody else would catch."""
    model, rank, gone = torch.nn.Linear(2, 2), LoneRank(), tmp_path / "gone"
    made: Any = rank
    for form in (OneFile, InParts):
        checkpoint = form(model, torch.optim.SGD(model.parameters()), gone / "deep", made)
        (tmp_path / "gone").write_text("") if not gone.exists() else None
        with pytest.raises(RuntimeError, match="a checkpoint cannot be written"):
            checkpoint.save()


def test_steps_that_fail_wait_for_the_checkpoint_that_is_written_beside_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Or what the ranks exchange next comes between its own exchanges, and all wait for ever."""
    waited, rank = list[bool](), LoneRank()
    started = SimpleNamespace(wait=lambda: waited.append(True) or True)
    checkpoint = InParts.__new__(InParts)
    monkeypatch.setattr(checkpoint, "start", lambda: started, raising=False)

    def step() -> None:
        assert not waited, "training goes on meanwhile"
        raise RuntimeError("two types of values")

    made: Any = checkpoint_cost.Saving(rank, tmp_path, 1)  # type: ignore[arg-type]
    failing = Subject(work=step, prove=tuple)
    beside = made._saved_beside(failing, failing, checkpoint)
    with pytest.raises(RuntimeError, match="two types of values"):
        beside.work()
    assert waited == [True]
