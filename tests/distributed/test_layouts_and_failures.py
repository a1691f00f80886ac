"""Which layouts of ranks over nodes are measured, and what a failed launch says about a rank."""

import platform
import signal
from pathlib import Path

import pytest
from scalecard.distributed.layout import layouts
from scalecard.distributed.notes import Notes
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure


def test_layouts_within_a_node_then_over_nodes() -> None:
    assert [str(layout) for layout in layouts(2, 1)] == ["1 rank", "2 ranks"]
    over = [(layout.ranks, layout.nodes) for layout in layouts(8, 3)]
    assert over == [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (16, 2), (3, 3), (24, 3)]


@pytest.mark.parametrize("nccl", [True, False])
def test_a_rank_that_nccl_aborts_was_waiting_for_others(nccl: bool, tmp_path: Path) -> None:
    Notes(tmp_path).begin(0)
    aborted = ProcessFailure(local_rank=0, pid=1, exitcode=-signal.SIGABRT, error_file="none")
    failure = Notes(tmp_path).failure(ChildFailedError("test", {0: aborted}), nccl=nccl)
    assert failure.about_others == nccl
    assert failure.ranks == [0]
    assert ("aborted by NCCL" if nccl else "was killed by signal 6") in failure.text


def test_a_rank_that_waits_notes_no_private_name_and_who_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes(tmp_path)
    for rank in (0, 1, 2):
        notes.begin(rank)
    monkeypatch.setattr("scalecard.distributed.notes.time.sleep", lambda seconds: None)
    monkeypatch.setattr("scalecard.distributed.notes.processes.is_stopped", lambda pid: True)
    monkeypatch.setattr("scalecard.distributed.notes.processes.kill", lambda pid: None)
    error = RuntimeError(f"[/home/me/gloo/pair.cc:534] Connection closed by peer [10.1.2.3]:4124, on {platform.node()}")
    notes.leave(error, 2)
    ended = ProcessFailure(local_rank=2, pid=1, exitcode=1, error_file="none")
    failure = notes.failure(ChildFailedError("test", {2: ended}), nccl=False)
    assert (failure.about_others, failure.lost) == (True, True)
    assert (failure.silent, failure.stopped) == ([0, 1], [0, 1, 2])
    said = "[<path>:534] Connection closed by peer [<address>]:4124, on <host>"
    assert failure.text == f"rank 2 failed: RuntimeError: {said}"
