"""What the benchmarks offer is what the catalogue says of it, and all that it says."""

from types import SimpleNamespace
from typing import Any

import pytest
from scalecard.benchmarks.training import builders
from scalecard.benchmarks.training.strategy import StrategyBuilder
from scalecard.distributed import Layout
from scalecard.parallel.torch_pipelining import SCHEDULES as OF_TORCH
from scalecard.records import strategies
from scalecard.records.schedules import SCHEDULES as OURS
from scalecard.records.strategies import ALL, HYBRID, Collective, Family, Strategy


def offered(*, ranks: bool) -> list[StrategyBuilder]:
    """On one device and on four; on ranks, these are on two nodes."""
    if ranks:
        ctx: Any = SimpleNamespace(world_size=4, spans_nodes=True, layout=Layout(4, 2))
        return list(builders.on_ranks(ctx))
    device: Any = SimpleNamespace(torch=SimpleNamespace(type="cuda"))
    return [*builders.in_process([device]), *builders.in_process([device] * 4)]


@pytest.mark.parametrize("ranks", [False, True])
def test_every_strategy_is_offered_where_the_catalogue_says(ranks: bool) -> None:
    steps = {one.kind for one in offered(ranks=ranks) if not one.is_part}
    assert steps == {kind for kind in ALL if kind.on_ranks == ranks and kind is not HYBRID}


def test_schedules_are_those_that_can_be_run() -> None:
    assert {kind.schedule for kind in ALL if kind.schedule and not kind.on_ranks} == {*OURS}
    assert {kind.schedule for kind in ALL if kind.schedule and kind.on_ranks} == {*OF_TORCH}


def test_replicas_have_as_many_devices_as_the_catalogue_says() -> None:
    assert {one.kind: 4 // one.replicas for one in offered(ranks=True) if one.replicas > 1} == {
        kind: kind.replica_devices for kind in ALL if kind.family is Family.PRODUCT and kind is not HYBRID
    }


def test_in_bf16_parameters_are_sent_as_half_as_many_bytes_as_gradients() -> None:
    def sent(kind: Strategy, precision: str) -> float:
        return sum(one.times * one.collective.passes * one.bytes_ratio(precision) for one in kind.weight_collectives)

    kinds = (strategies.DDP, strategies.FSDP_GRADIENTS, strategies.FSDP_PARAMETERS, strategies.HSDP)
    assert [sent(kind, "float32") for kind in kinds] == [2, 2, 3, 3]
    assert [sent(kind, "bf16") for kind in kinds] == [2, 1.5, 2, 2]


def test_an_unknown_strategy_is_refused_by_name() -> None:
    assert strategies.of("HSDP").times(Collective.ALL_GATHER) == 2
    assert len({kind.name for kind in ALL}) == len(ALL)
    with pytest.raises(ValueError, match=r"no strategy is named 'HDSP' \(known: single device, DataParallel, DDP"):
        strategies.of("HDSP")
