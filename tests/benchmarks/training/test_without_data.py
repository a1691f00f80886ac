"""A model on the meta device on ranks: the values that each rank has of it, and what its host holds meanwhile."""

import gc
import json
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from scalecard.benchmarks.training import builders
from scalecard.benchmarks.training.strategy import References, Setting
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.hardware.machine import Machine
from scalecard.parallel import sharded
from scalecard.records.strategies import FSDP_GRADIENTS, FSDP_PARAMETERS
from scalecard.workloads.workload import HOST, Workload
from support.projects import ROOT
from torch import Tensor

FILE = f"{ROOT}/tests/benchmarks/training/of_others/without_data.py"
LAYERS = 6


def _mine() -> Workload:
    return Workload("without_data", FILE, json.dumps({"layers": LAYERS}), 8, seed=0, lr=0.1)


def _held(objects: Iterable[Any]) -> dict[int, int]:
    """Bytes of every storage with data, but for the random numbers' state, which is whole bytes."""
    tensors = [found for found in objects if issubclass(type(found), Tensor) and type(found).__name__ != "DTensor"]
    storages = [
        tensor.untyped_storage() for tensor in tensors if tensor.device.type == "cpu" and tensor.dtype != torch.uint8
    ]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _on_ranks(ctx: RankContext) -> tuple[bool, int]:
    """Whether all values are those of the plain loop's model, and the most bytes that were held as it was made."""
    mine, most = _mine(), 0
    before = _held(gc.get_objects())

    def look() -> None:
        nonlocal most
        now = _held(gc.get_objects())
        most = max(most, sum(size for place, size in now.items() if place not in before))

    mine.module.looked_at.append(look)
    references, equal = References(ctx.device, 1, counting=False), True
    for kind in (FSDP_PARAMETERS, FSDP_GRADIENTS):
        subject = builders._fsdp(kind, ctx, references, Setting(mine, ctx.world_size))
        assert subject.state
        ours = sharded.whole(subject.state())
        mine.module.looked_at.clear()
        plain = mine.network(HOST)
        wanted = builders.state_of(plain)
        equal = equal and len(ours) == len(wanted) and all(map(torch.equal, ours, wanted))
    return equal, most


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize("ranks", [2, 4])
def test_shards_have_the_plain_loops_values_and_no_host_holds_two_modules(ranks: int, machine: Machine) -> None:
    """On 4 ranks, of 6 rows the last rank has none, and of 7 the third has two and the last one."""
    model = _mine().network(HOST)
    modules = [sum(p.nbytes for p in module.parameters(recurse=False)) for module in model.modules()]
    whole, largest = sum(p.nbytes for p in model.parameters()), max(modules)
    shards = sum(-(-len(p) // ranks) * p[0].numel() * 4 for p in model.parameters())
    buffers = sum(b.nbytes for b in model.buffers())
    assert shards + 2 * largest + buffers < 0.9 * whole, "or the limit would allow all of it"
    for equal, most in launch(_on_ranks, layout=Layout(ranks), machine=machine):
        assert equal
        assert shards < most <= shards + largest + 2 * buffers + 16
