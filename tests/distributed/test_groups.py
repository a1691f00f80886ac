"""Which device each process group is bound to, by torch's own rules, and that every stage's group is its own."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext, join
from scalecard.distributed.launch import launch
from scalecard.hardware.machine import Machine
from scalecard.parallel.torch_pipelining import mesh
from torch.distributed import distributed_c10d

MINUTE = timedelta(minutes=1)


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """This process is local rank 1 of a box whose GPUs are pretended; the list gets the device of each NCCL group.

    torch itself chooses the devices; only NCCL's communicators are gloo's.
    """
    bound: list[Any] = []

    def create(store: Any, rank: int, size: int, options: Any, device: Any = None) -> Any:
        bound.append(device)
        return dist.ProcessGroupGloo(store, rank, size, MINUTE)

    if not dist.is_nccl_available() or os.environ.get("TORCH_DIST_USE_NCCL2") == "0":
        pytest.skip("this PyTorch has no ProcessGroupNCCL2")
    monkeypatch.setattr(distributed_c10d, "ProcessGroupNCCL2", create)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda device: None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for key, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(key, str(value))
    monkeypatch.setenv("LOCAL_RANK", "1")
    yield bound
    if dist.is_initialized():
        dist.destroy_process_group()


def test_a_rank_with_two_gpus_has_a_group_bound_to_each(machine: Machine, four_gpus: list[Any]) -> None:
    gpus = replace(machine, kind="cuda", num_devices=4)
    ctx = join(gpus, MINUTE, Layout(1), devices_each=2)
    assert ctx.device == torch.device("cuda:2")
    assert dist.group.WORLD.bound_device_id is None, "or every new group is bound to cuda:LOCAL_RANK"
    stages = [torch.device("cuda:2"), torch.device("cuda:3")]
    groups = [ctx.new_group(device) for device in stages]
    assert [group.bound_device_id for group in groups] == stages
    assert four_gpus == stages, "and there is no other communicator of NCCL's"
    assert ctx.control.bound_device_id is None


def test_a_rank_with_one_gpu_uses_that_one(machine: Machine, four_gpus: list[Any]) -> None:
    ctx = join(replace(machine, kind="cuda", num_devices=4), MINUTE, Layout(1), devices_each=1)
    assert four_gpus == [ctx.device] == [torch.device("cuda:1")]


def sums_in_opposite_orders(ctx: RankContext) -> list[float]:
    """One group per stage; the second rank's collectives are issued in the other order."""
    groups = [ctx.new_group(ctx.device) for _ in range(2)]
    values = [torch.tensor([1.0 + ctx.rank]), torch.tensor([10.0 + ctx.rank])]
    pairs = list(zip(values, groups, strict=True))
    works = [dist.all_reduce(value, group=group, async_op=True) for value, group in pairs[:: 1 - 2 * ctx.rank]]
    for work in works:
        work.wait()
    return [value.item() for value in values]


@pytest.mark.usefixtures("forked_ranks")
def test_stages_average_side_by_side_in_groups_of_their_own(machine: Machine) -> None:
    returned = launch(sums_in_opposite_orders, layout=Layout(2), machine=machine, devices_each=2)
    assert returned == [[3.0, 21.0]] * 2


def groups_before_and_after(ctx: RankContext) -> tuple[int, int, int]:
    """How many groups torch keeps before this rank is among others, meanwhile, and after it left."""
    kept = [len(distributed_c10d._world.pg_map)]
    some = ctx.among([0, 1])
    kept.append(len(distributed_c10d._world.pg_map))
    if some:
        some.leave()
    return kept[0], kept[1], len(distributed_c10d._world.pg_map)


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_that_leave_give_their_groups_back(machine: Machine) -> None:
    first, second, outside = launch(groups_before_and_after, layout=Layout(3), machine=machine)
    assert first == second == (2, 4, 2)
    assert outside == (2, 2, 2)


def two_by_two(ctx: RankContext) -> tuple[list[list[int]], list[str], bool, float]:
    """Of a mesh of two replicas, this rank's groups, their timeouts, whether it is made once, and a sum over shards."""
    made = mesh(ctx, 2)
    groups = [made.get_group(name) for name in ("replica", "shard")]
    timeouts = [str(group._get_backend(ctx.device).options._timeout) for group in groups]
    total = torch.tensor([float(ctx.rank)])
    dist.all_reduce(total, group=groups[1])
    return [dist.get_process_group_ranks(group) for group in groups], timeouts, mesh(ctx, 2) is made, total.item()


@pytest.mark.usefixtures("forked_ranks")
def test_a_lost_rank_of_a_mesh_is_waited_for_no_longer_than_any_other(machine: Machine) -> None:
    """Groups that PyTorch makes for a mesh have timeouts of its own: ten minutes of NCCL, thirty of gloo."""
    found = launch(two_by_two, layout=Layout(4), machine=machine, timeout=MINUTE)
    assert [groups for groups, *_ in found] == [[[0, 2], [0, 1]], [[1, 3], [0, 1]], [[0, 2], [2, 3]], [[1, 3], [2, 3]]]
    assert [total for *_, total in found] == [1, 1, 5, 5]
    for _, timeouts, once, _ in found:
        assert timeouts == [str(MINUTE)] * 2
        assert once
