"""What is divided over ranks, on one rank: the proofs of `strategies` have several."""

from typing import Any

import pytest
import torch
from scalecard.parallel import sharded
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy


def test_what_nobody_divided_is_whole() -> None:
    tensors = [torch.ones(2), torch.zeros(1, 3)]
    assert list(map(id, sharded.whole(tensors))) == list(map(id, tensors))


@pytest.mark.parametrize(
    ("shape", "ranks", "elements"),
    [((3, 2), 2, 8), ((4, 2), 2, 8), ((5,), 4, 8), ((1, 7), 3, 21), ((), 2, 2)],
)
def test_the_rows_of_what_is_gathered_are_padded_to_the_ranks(
    shape: tuple[int, ...], ranks: int, elements: int
) -> None:
    """5 rows over 4 ranks are 2 each."""
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        assert sharded.gathered_bytes([torch.ones(shape, dtype=dtype)], ranks) == elements * size
    assert sharded.gathered_bytes([torch.ones(shape)] * 3, ranks) == 3 * elements * 4


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"0": "diagonal"}, r"tensor_plan\(model\)\['0'\] = 'diagonal': must be one of column, row"),
        ({"0": "column", "7": "row"}, r"tensor_plan\(model\)\['7'\]: the model has no such layer"),
    ],
)
def test_a_plan_that_the_model_cannot_follow_is_refused(plan: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sharded.divided(nn.Sequential(nn.Linear(2, 2)), plan, mesh=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("on_host", [True, False])
def test_shards_stay_in_the_hosts_memory_if_they_are_asked_to(on_host: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """That they do on GPUs is checked once they were timed, and tried on pretended ones."""
    given = list[Any]()
    monkeypatch.setattr(sharded, "fully_shard", lambda module, **options: given.append(options.get("offload_policy")))
    sharded.sharded(nn.Sequential(nn.Linear(2, 2)), [], mesh=None, parameters=True, on_host=on_host)  # type: ignore[arg-type]
    assert [isinstance(policy, CPUOffloadPolicy) for policy in given] == [on_host]
