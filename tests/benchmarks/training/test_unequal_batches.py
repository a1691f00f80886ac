"""Batches of unequal length: found, drawn by each rank for itself, proven, timed over whole cycles, or refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from scalecard import experiments
from scalecard.analysis import breakdown
from scalecard.analysis.platforms import PlatformResults
from scalecard.benchmarks.training.validate import varies
from scalecard.experiments import strategies
from scalecard.hardware.machine import probe
from scalecard.records.record import Record, Result
from scalecard.workloads.nested import NUM_BATCHES, seed_of
from scalecard.workloads.workload import HOST, Workload
from support.blocks import SHORTEST
from support.projects import ROOT

FILE = f"{ROOT}/tests/benchmarks/training/of_others/padded.py"
MINE = Workload("padded", FILE, "{}", 8, seed=0, lr=0.1)
UNEQUAL = replace(MINE, varies=True)


def lengths(workload: Workload) -> list[int]:
    return [inputs.shape[1] for inputs, _ in workload.batches(HOST)]


def test_a_workload_varies_if_other_seeds_give_other_shapes() -> None:
    assert varies(MINE)
    assert not varies(replace(MINE, values='{"fixed": 12}'))


def test_each_rank_takes_the_same_batches_in_an_order_of_its_own() -> None:
    seeds = [[seed_of(100, rank, turn) for turn in range(NUM_BATCHES)] for rank in range(8)]
    assert seeds[0] == list(range(100, 108)), "a device alone, as they are numbered"
    assert all(sorted(each) == seeds[0] for each in seeds), "over a cycle no rank has more work"
    assert len({tuple(each) for each in seeds}) == 8
    assert seed_of(100, 3, NUM_BATCHES) == seed_of(100, 3, 0), "over and over"
    alone, second = lengths(replace(UNEQUAL, batch_size=4)), lengths(UNEQUAL.of_rank(1, 2))
    assert sorted(alone) == sorted(second)
    assert alone != second
    assert len(set(alone)) > 1


def test_the_plain_loop_trains_on_the_ranks_own_batches_each_as_much() -> None:
    """Of 2 ranks with 4 samples each in micro-batches of 3 and 1: weights of 3/8, 1/8, 3/8 and 1/8."""
    first, second = replace(UNEQUAL, shares=2).steps((3, 1, 3, 1), 2, False, HOST)
    assert [part.weight for part in first] == [3 / 8, 1 / 8, 3 / 8, 1 / 8]
    for turn, step in enumerate((first, second)):
        for rank in range(2):
            ours, _ = UNEQUAL.of_rank(rank, 2).batches(HOST)[turn]
            theirs = torch.cat([part.inputs for part in step[2 * rank : 2 * rank + 2]])
            assert torch.equal(ours, theirs)


def test_tokens_are_those_of_single_samples_without_padding() -> None:
    each = [UNEQUAL.module.batch(1, seed)[0].numel() for seed in range(256)]
    assert UNEQUAL.units(256) == sum(each), "as many samples as are looked at, of their mean length"
    assert MINE.units(8) == 8 * each[0]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    block: dict[str, Any] = {
        "devices": 2,
        "seed": 0,
        "dataset": "synthetic",
        "data_dir": "data",
        "measure": SHORTEST,
        "nodes": 1,
        "workloads": {
            "padded": {"file": FILE, "batch_size": 8, "recipe": {"optimizer": "sgd", "accumulate": 2, "clip": 1.0}}
        },
        "scaling": ["strong"],
        "micro_batches": 4,
        "precision": [],
        "checkpointing": [],
        "check_steps": 3,
        "trace": False,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        spec = experiments.build("strategies", json.dumps(block))
        return list(strategies.run(spec, replace(probe(), num_devices=2)))


def test_what_shares_the_batch_is_proven_and_timed_over_whole_cycles(records: list[Record]) -> None:
    steps = [record for record in records if record.metric == "step_time" and record.status == "ok"]
    on_two = {record.text("strategy"): record for record in steps if record.matches(devices=2)}
    assert set(on_two) == {"DDP", "ZeRO-1", "FSDP gradients", "FSDP parameters", "tensor parallel"}
    assert any(record.matches(devices=1, strategy="single device") for record in steps)
    for record in steps:
        assert {check.dtype for check in record.checks} == {"float64", "float32"}
        assert all(check.passed for check in record.checks)
        assert f"mean over {NUM_BATCHES} batches of unequal length: a step takes " in record.note
    assert all(record.status == "ok" for record in records if record.metric == "rank_time")


def test_what_needs_fixed_shapes_is_refused_with_the_reason(records: list[Record]) -> None:
    refused = {r.text("strategy"): r.note for r in records if r.metric == "step_time" and r.status == "skipped"}
    stages = {"model parallel", "our gpipe", "our 1f1b", "torch gpipe", "torch 1f1b", "torch interleaved 1f1b"}
    assert stages <= set(refused)
    assert {refused[name] for name in stages} == {
        "its batches have unequal lengths, and stages hand over tensors of fixed shapes"
    }
    assert "nn.DataParallel divides one that is padded as a whole" in refused["DataParallel"]


def test_the_report_says_what_each_step_waits_for(records: list[Record], make_result: Callable[..., Result]) -> None:
    """Whatever this machine took: the terms add up, none is missing, and no rank is called the slow one."""
    result = make_result(records, experiment="strategies")
    (ddp,) = [e for e in breakdown.of_strategies(PlatformResults({"strategies": result})) if e.run.strategy == "DDP"]
    slowest = ddp.term(breakdown.SLOWEST)
    assert slowest.seconds > 0
    assert slowest.rank is None
    assert sum(term.seconds for term in ddp.terms) == pytest.approx(ddp.seconds)


def test_the_slowest_rank_takes_as_long_as_any(records: list[Record]) -> None:
    """How much longer, tests/measuring/test_timer.py says by a simulated clock; here one may always be slowest."""
    (slowest,) = [record for record in records if record.metric == "unsynchronised_time"]
    own = [record for record in records if record.metric == "rank_time"]
    assert len(own) == 2
    for waited, *ranks in zip(slowest.samples[0], *(record.samples[0] for record in own), strict=True):
        assert waited >= max(ranks)
