"""Which layouts of ranks over nodes are measured, and what a failed launch says about a rank."""

import signal
from pathlib import Path

import pytest
from scalecard.distributed import launch
from scalecard.distributed.layout import layouts
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure


def test_layouts_within_a_node_then_over_nodes() -> None:
    assert [str(layout) for layout in layouts(2, 1)] == ["1 rank", "2 ranks"]
    over = [(layout.ranks, layout.nodes) for layout in layouts(8, 3)]
    assert over == [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (16, 2), (3, 3), (24, 3)]


@pytest.mark.parametrize("nccl", [True, False])
def test_a_rank_that_nccl_aborts_was_waiting_for_others(nccl: bool, tmp_path: Path) -> None:
    (tmp_path / "began.0").touch()
    aborted = ProcessFailure(local_rank=0, pid=1, exitcode=-signal.SIGABRT, error_file="none")
    failure = launch._failure(ChildFailedError("test", {0: aborted}), tmp_path, nccl=nccl)
    assert failure.about_others == nccl
    assert failure.ranks == [0]
    assert ("aborted by NCCL" if nccl else "was killed by signal 6") in failure.text
