"""What the proof of DDP cannot tell apart: which hook it is, which options arrive, where buckets end, whose images."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from scalecard.distributed.context import RankContext
from scalecard.parallel import ddp
from scalecard.workloads import datasets
from scalecard.workloads.datasets import Split
from torch import nn


@pytest.mark.parametrize("name", ddp.HOOKS)
def test_a_hook_compresses_to_what_it_is_called(name: str) -> None:
    """Rounding to float16 is within what rounding to bfloat16 may change, so the proof accepts either."""
    assert ddp.HOOKS[name].__name__ == f"{name}_compress_hook"


def test_options_reach_ddp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model's gradients are one bucket, whatever the option says."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(ddp, "DistributedDataParallel", lambda model, **options: seen.update(options))
    ctx = cast(RankContext, SimpleNamespace(device=torch.device("cpu")))
    for option in (ddp.Option("bucket 5 MiB", bucket_mib=5), ddp.Option("static_graph", switch="static_graph")):
        option.around(nn.Linear(1, 1), ctx)
    assert seen == {"device_ids": None, "bucket_cap_mb": 5, "static_graph": True}


def test_a_bucket_is_closed_by_the_gradient_that_fills_it() -> None:
    """Of torch's defaults, the first is closed after 1 MiB, all others after 25."""
    mebibyte = torch.zeros(2**18)
    assert ddp.num_buckets([mebibyte] * 2, None) == 2
    assert ddp.num_buckets([mebibyte] * 26, None) == 2
    assert ddp.num_buckets([mebibyte] * 27, None) == 3
    assert ddp.num_buckets([mebibyte] * 27, 9) == 3


def test_ranks_take_consecutive_images_and_start_over_at_the_end() -> None:
    train = Split(torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 1, 28, 28), torch.arange(5))
    shards = [datasets.shard(train, 2, rank, torch.float32) for rank in range(3)]
    assert [labels.tolist() for _, labels in shards] == [[0, 1], [2, 3], [4, 0]]
    assert [(255 * images[:, 0, 0, 0]).round().tolist() for images, _ in shards] == [[0, 1], [2, 3], [4, 0]]
