"""What the proof of the library's pipelines cannot tell apart: which schedule it is, and over which communicators."""

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.parallel.torch_pipelining import SCHEDULES, pipeline_group

TIMEOUT = timedelta(seconds=7)


@pytest.mark.parametrize(("name", "of_torch"), [("gpipe", "ScheduleGPipe"), ("1f1b", "Schedule1F1B")])
def test_the_librarys_schedules_are_what_they_are_called(name: str, of_torch: str) -> None:
    """Both compute the same and send as much."""
    assert SCHEDULES[name].__name__ == of_torch


class Group:
    """A process group that is only described."""

    def __init__(self, ranks: Any, timeout: timedelta, backend: str, *, device_id: torch.device | None) -> None:
        self.ranks, self.timeout, self.backend, self.device = list(ranks), timeout, backend, device_id


@pytest.mark.parametrize(
    ("device", "backend", "bound"),
    [(torch.device("cuda", 3), "nccl-lazy", torch.device("cuda", 3)), (torch.device("cpu"), "gloo", None)],
)
def test_ranks_of_a_pipeline_have_a_communicator_for_each_pair(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, backend: str, bound: torch.device | None
) -> None:
    """One communicator of all ranks takes turns, which PyTorch warns of."""
    made = list[Group]()

    def new_group(*args: Any, **more: Any) -> Group:
        made.append(Group(*args, **more))
        return made[-1]

    monkeypatch.setattr(dist, "ProcessGroup", Group)
    monkeypatch.setattr(dist, "new_group", new_group)
    control: Any = None
    ctx = RankContext(3, 4, device, control, Layout(4), TIMEOUT)
    for _ in range(2):
        mine: Any = pipeline_group(ctx, 2)
    assert (mine.ranks, mine.timeout, mine.backend, mine.device) == ([2, 3], TIMEOUT, backend, bound)
    assert [group.ranks for group in made] == [[0, 1], [2, 3]], "by all ranks in one order, and once"
