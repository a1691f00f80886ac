"""Tuning as an experiment: what of the ladders is chosen for epochs, how those are proven, and what is refused."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scalecard import experiments
from scalecard.benchmarks.training.tuning import Combination
from scalecard.distributed import launch as launches
from scalecard.distributed.nodes import RanksFailed
from scalecard.experiments import tuning
from scalecard.hardware.machine import Machine
from scalecard.records import files
from scalecard.records.axes import Case, rungs_of
from scalecard.records.record import Record, Result
from scalecard.workloads import compiled, datasets
from scalecard.workloads.recipe import Recipe
from scalecard.workloads.workload import built_in
from support.blocks import block, smoke_block
from support.builders import out_of_memory
from support.lone_rank import LoneRank

EXAMINED = tuning.examined
IMAGES = {"epochs_of": "lenet", "epoch_batch_size": 8, "lr": 0.2, "epochs": 2, "train_images": 20, "test_images": 16}


def spec(**changes: Any) -> tuning.Spec:
    made: tuning.Spec = experiments.build("tuning", smoke_block("tuning", rungs=["fused"], **changes))
    return made


def timed(seconds: float, **axes: int) -> Record:
    case: Case = {"workload": "lenet", **axes}
    return Record(case=case, metric="step_time", unit="s", samples=[[seconds]])


@pytest.mark.parametrize(
    ("seconds", "fastest"),
    [
        ((3.0, 2.0, 2.5, 1.0, 9.0, 9.0), ["bf16", "fused"]),
        ((3.0, 2.0, 1.0, 1.5, 9.0, 9.0), ["fused"]),
        ((1.0, 2.0, 2.0, 2.0, 9.0, 9.0), []),
        ((3.0, 1.9, 2.0, 2.0, 1.8, 1.7), ["bf16"]),  # epochs have one batch per update, of a size of their own
    ],
)
def test_epochs_have_the_rungs_of_the_fastest_step(seconds: tuple[float, ...], fastest: list[str]) -> None:
    kinds = ({}, {"bf16": 1}, {"fused": 1}, {"fused": 2, "bf16": 1}, {"accumulate": 4}, {"fused": 1, "batch_factor": 2})
    records = [timed(taken, **kind) for kind, taken in zip(kinds, seconds, strict=True)]
    failed = out_of_memory({"workload": "lenet", "compile": 1}, metric="step_time")
    assert tuning._fastest([failed, *records]) == fastest
    assert tuning._fastest([failed]) == []


@pytest.mark.usefixtures("few_images")
def test_epochs_are_proven_and_counted_and_their_accuracy_is_taken(make_result: Callable[..., Result]) -> None:
    """20 images make three batches of 8, the last one smaller."""
    rank: Any = LoneRank()
    images = datasets.synthetic().limited(20, 16)
    records = list(
        tuning._epochs(rank, spec(**IMAGES), images, [Combination(), Combination(("channels_last", "fused"))])
    )
    files.parse(files.as_json(make_result(records, experiment="tuning")), "of the schema")
    assert [record.metric for record in records] == ["epoch_time", "accuracy"] * 2
    plain, _, tuned, accuracy = records
    assert (rungs_of(plain.case), rungs_of(tuned.case)) == ((), ("channels_last", "fused"))
    assert [check.dtype for check in tuned.checks] == ["float64"]
    work = {count.name: count.counted for count in tuned.work}
    assert (work["fused updates"], work["samples"]) == (3, 20)
    assert len(tuned.samples[0]) == len(accuracy.samples[0]) == 2


def test_the_model_of_the_epochs_is_no_second_workload_of_its_name() -> None:
    assert [workload.name for workload in spec(**IMAGES).of_epochs] == ["lenet"]
    assert spec(**IMAGES, workloads={"lenet": {"batch_size": 4}}).of_epochs == []
    assert spec(epochs_of=None).of_epochs == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rungs": ["bf16", "bf16"]}, '"bf16" occurs twice'),
        ({"rungs": ["fp8"]}, "experiments.tuning.rungs"),
        ({"accumulation": [1]}, "experiments.tuning.accumulation"),
        ({"larger_batches": [1]}, r"experiments.tuning.larger_batches.* greater than or equal to 2"),
    ],
)
def test_what_is_no_rung_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        experiments.build("tuning", block("tuning", **changes))


def test_if_the_fastest_rungs_fail_on_a_gpu_float32_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is made up: nothing is trained, and recording a graph fails."""
    tried = list[int]()

    def epoch_records(variants: list[Any], **options: Any) -> list[Any]:
        tried.append(len(variants))
        if len(variants) > 1:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return []

    monkeypatch.setattr(tuning, "epoch_records", epoch_records)
    images = datasets.Dataset("synthetic", *[datasets.Split(torch.zeros(2, 1, 28, 28), torch.zeros(2))] * 2)
    for device, tries in (("cuda", [2, 1]), ("cpu", [2])):
        tried.clear()
        rank: Any = SimpleNamespace(device=torch.device(device))
        monkeypatch.setattr(datasets.Dataset, "to", lambda self, device: self)
        made = tuning._epochs(rank, spec(**IMAGES), images, [Combination(), Combination(("graphs",))])
        if device == "cpu":
            with pytest.raises(RuntimeError, match="capturing"):
                list(made)
        else:
            (failed,) = made
            assert (failed.status, rungs_of(failed.case), failed.metric) == ("failed", ("graphs",), "epoch_time")
        assert tried == tries


OF_TWO = """
import torch
from torch import nn
from torch.nn import functional
def model(): return nn.Linear(3, 2)
def batch(size, seed):
    if size > 2:
        raise ValueError("there are two samples")
    return torch.ones(size, 3), torch.ones(size, 2)
def loss(outputs, targets): return functional.mse_loss(outputs, targets)
"""


def test_a_file_that_raises_costs_its_own_records_alone_and_each_workload_is_compiled_anew(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_two.py").write_text(OF_TWO)
    caches = list[str]()

    def launch(function: Any, *args: Any, **options: Any) -> list[Any]:
        """In this process."""
        try:
            return [list(function(LoneRank(), *args))]
        except ValueError as error:
            raise RanksFailed(str(error)) from error

    def examined(*args: Any) -> Any:
        caches.append(os.environ[compiled.CACHES[0]])
        return EXAMINED(*args)

    monkeypatch.setattr(launches, "launch", launch)
    monkeypatch.setattr(tuning, "examined", examined)
    mine, toy = {"file": str(tmp_path / "of_two.py"), "batch_size": 3}, {"batch_size": 4}
    made = spec(workloads={"mine": mine, "toy": toy}, accumulation=[])
    found = [r for r in tuning.run(made, replace(machine, num_devices=1)) if r.metric == "step_time"]
    assert {str(r.case["workload"]) for r in found if r.status == "ok"} == {"toy"}
    (failed,) = [record for record in found if record.status == "failed"]
    assert failed.case == {"workload": "mine", "devices": 1}
    assert "there are two samples" in failed.note
    assert len({*caches}) == 2, "the folder of compiled code"


def test_a_ladder_begins_with_all_of_the_recipe_but_what_is_among_its_rungs() -> None:
    rank: Any = LoneRank()
    recipe = Recipe("adamw", "float32", "blocks", accumulate=2, clip=1.0, compile=True)
    toy = replace(built_in("toy", seed=0, batch_size=4), recipe=recipe)
    records = list(tuning._ladder(rank, spec(), toy, {"workload": "toy", "devices": 1}))
    steps = [record for record in records if record.metric == "step_time" and record.status == "ok"]
    assert {rungs_of(step.case) for step in steps} == {(), ("fused",)}
    for step in steps:
        work = {count.name: count.counted for count in step.work}
        assert work["forwards"] == 2
        assert work["recomputed FLOPs"] > 0
        assert step.note.startswith("clipped to a norm of ")
