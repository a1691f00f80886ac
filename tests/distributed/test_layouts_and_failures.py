"""Which layouts of ranks over nodes are measured, and what a failed launch says about a rank."""

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from scalecard.distributed import Layout, layouts
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import Notes
from scalecard.distributed.nodes import Nodes, RankLost, Rendezvous
from torch.distributed import HashStore
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure


def test_nodes_that_publish_nothing_in_time_are_absent() -> None:
    nodes = Nodes(3)
    nodes.__dict__["store"] = HashStore()  # in place of a connection to the first node's
    nodes.publish("facts", {"cores": 2})
    assert nodes.collect("facts", within=timedelta(milliseconds=50)) == {0: {"cores": 2}}


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
    monkeypatch.setattr("scalecard.distributed.launch.time.sleep", lambda seconds: None)
    monkeypatch.setattr("scalecard.distributed.launch.isolation.stopped_siblings", lambda: [os.getpid()])
    monkeypatch.setattr("scalecard.distributed.launch.isolation.kill", lambda pid: None)
    error = RuntimeError("[/home/me/gloo/pair.cc:534] Connection closed by peer [10.1.2.3]:4124")
    notes.leave(error, 2)
    ended = ProcessFailure(local_rank=2, pid=1, exitcode=1, error_file="none")
    failure = notes.failure(ChildFailedError("test", {2: ended}), nccl=False)
    assert failure.about_others
    assert (failure.silent, failure.stopped) == ([0, 1], [0, 1, 2])
    said = "[[path]:534] Connection closed by peer [[address]]:4124"
    assert failure.text == f"rank 2 failed: RuntimeError: {said}"


def test_a_rank_that_never_began_is_named_by_those_that_waited_for_it(tmp_path: Path) -> None:
    """It was stopped before it could write anything down, and killed by the rank that waited."""
    meeting = Rendezvous.arrive(Layout(2))
    assert meeting
    notes = Notes(tmp_path)
    notes.begin(0)
    notes.leave(TimeoutError("wait timeout after 10000 ms"), 0)
    killed = ProcessFailure(local_rank=1, pid=1, exitcode=-signal.SIGKILL, error_file="none")
    ours = notes.failure(ChildFailedError("test", {1: killed}), nccl=False)
    error = meeting.failure(ours, timedelta(seconds=10))
    assert isinstance(error, RankLost)
    assert str(error).startswith("of 2 ranks, rank 1 did not answer (rank 0 failed: TimeoutError")


@pytest.mark.parametrize(("count", "spans"), [(1, False), (2, True), (3, True)])
def test_a_rank_knows_whether_there_are_other_nodes(count: int, spans: bool) -> None:
    control: Any = None
    context = RankContext(0, 6, torch.device("cpu"), control, Layout(6, count), timedelta(seconds=1))
    assert context.spans_nodes == spans
