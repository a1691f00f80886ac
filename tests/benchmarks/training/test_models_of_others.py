"""Models that are nobody's here, and our own, trained by every strategy that can, each proven and counted."""

import json
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import pytest
import torch
from scalecard import experiments
from scalecard.benchmarks.training.cut_model import balanced_cuts
from scalecard.benchmarks.training.strategy import CannotBe
from scalecard.experiments import strategies
from scalecard.hardware.machine import probe
from scalecard.records.record import Reason, Record
from scalecard.records.strategies import OTHER_RECIPE
from scalecard.workloads.recipe import TEXTBOOKS, OptimizerSettings, Recipe
from scalecard.workloads.workload import Workload
from support.blocks import SHORTEST
from support.projects import ROOT
from torch import Tensor, nn

OTHERS = "tests/benchmarks/training/of_others"
DATA_PARALLEL = {"DDP", "FSDP gradients", "FSDP parameters"}
DIVIDED_STATES = {"ZeRO-1"}  # whose ranks update parameters that differ
IN_STAGES = {"model parallel", "our gpipe", "our 1f1b", "torch gpipe", "torch 1f1b", "torch interleaved 1f1b"}
ON_RANKS_IN_STAGES = {name for name in IN_STAGES if name.startswith("torch")}
WITHOUT_OPTIMIZER_BYTES = {"tensor parallel", "data x tensor"}
NO_BLOCKS = "its children (it has no blocks(model)), one after another, do not compute what the model does"
PLAYED = {"model parallel", "our gpipe", "our 1f1b"}
SAVED = {
    *product(("save_time", "restore_time", "checkpoint_size"), ("one file", "in parts")),
    *product(("steps_time",), ("none", "asynchronous")),
    ("checkpoint_size", "asynchronous"),
}
TINY_GPT = {"layers": 6, "width": 16, "heads": 4, "sequence": 8, "vocabulary": 32}


def measured(
    monkeypatch: pytest.MonkeyPatch,
    devices: int,
    others: dict[str, list[str]] | None = None,
    **workloads: dict[str, Any],
) -> list[Record]:
    """Also by `others`, recipes of these precisions and checkpointing."""
    monkeypatch.chdir(ROOT)
    block = {
        "devices": devices,
        "seed": 0,
        "dataset": "synthetic",
        "data_dir": "data",
        "measure": SHORTEST,
        "nodes": 1,
        "workloads": workloads,
        "scaling": ["strong"],
        "micro_batches": 4,
        **(others or {"precision": [], "checkpointing": []}),
        "check_steps": 2,
        "trace": False,
    }
    spec = experiments.build("strategies", json.dumps(block))
    return list(strategies.run(spec, replace(probe(), num_devices=devices)))


def trained(records: list[Record], workload: str, devices: int, recipe: Recipe = TEXTBOOKS) -> set[str]:
    """The strategies that were timed, each proven in float64 and as timed, with what the recipe asks for counted."""
    wanted, found = OptimizerSettings(0, recipe.optimizer), set()
    for record in (record for record in records if record.metric == "step_time"):
        if record.status == "ok" and record.matches(workload=workload, devices=devices):
            assert {check.dtype for check in record.checks} == {"float64", "float32"}
            assert all(check.passed for check in record.checks)
            work = {count.name: count.counted for count in record.work}
            own = recipe.optimizer == "own" or record.case["strategy"] in DIVIDED_STATES
            assert work.get("updates") == (None if own else wanted.writes_per_step)
            assert ("optimizer bytes" in work) == (record.text("strategy") not in WITHOUT_OPTIMIZER_BYTES)
            kept = recipe.optimizer != "plain_sgd"
            assert bool(work.get("optimizer bytes", kept)) == kept
            assert record.case.get("precision") == ("bf16" if recipe.precision == "bf16" else None)
            assert work.get("float32 FLOPs", 0) < 0.2 * work.get("FLOPs", 1), "attention's own product may stay"
            assert bool(work.get("recomputed FLOPs")) == ("FLOPs" in work and recipe.checkpointing != "none")
            found.add(str(record.case["strategy"]))
    return found


def sharing(recipe: Recipe) -> set[str]:
    """The strategies whose ranks share the batch; plain SGD has no states to divide."""
    return DATA_PARALLEL if recipe.optimizer == "plain_sgd" else DATA_PARALLEL | DIVIDED_STATES


def played(records: list[Record], devices: int) -> set[str]:
    """The strategies whose schedules were played with their stages' own times."""
    found = [r for r in records if r.metric == "played_bubble" and r.status == "ok" and r.matches(devices=devices)]
    assert all(0 <= value < 1 for record in found for value in record.samples[0])
    return {str(record.case["strategy"]) for record in found}


def saved(records: list[Record], devices: int) -> set[tuple[str, str]]:
    """The ways to save on so many devices, and what was timed of each, proven by what was loaded again."""
    metrics = ("save_time", "restore_time", "steps_time", "checkpoint_size")
    found = [record for record in records if record.metric in metrics and record.matches(devices=devices)]
    assert all(record.status == "ok" for record in found), [record.note for record in found]
    assert all(record.checks for record in found if record.unit == "s")
    return {(record.metric, record.text("saving")) for record in found}


def notes(records: list[Record], strategy: str) -> set[str]:
    return {record.note for record in records if record.case.get("strategy") == strategy and record.status == "skipped"}


@pytest.mark.workflow
@pytest.mark.parametrize(
    ("name", "recipe", "why"),
    [
        ("unet", Recipe("own", "bf16", accumulate=2), NO_BLOCKS),
        ("two_tower", Recipe("own", clip=1.0), NO_BLOCKS),
        ("gru", Recipe("adamw", "bf16", accumulate=2, clip=1.0), "two of its blocks share a parameter"),
        ("adapted", Recipe("adamw", "bf16", "blocks", accumulate=2, clip=1.0), "blocks(model), one after another"),
        ("shared_layer", TEXTBOOKS, "blocks(model), one after another, do not compute what the model does"),
    ],
)
def test_a_model_of_somebody_else_is_trained_by_what_divides_its_batch(
    name: str, recipe: Recipe, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A U-Net with skips; two towers with dicts and dropout; tied weights; adapters; one layer that is called twice.

    The first two have optimisers of their own: Nesterov's, and a centered RMSprop with momentum.
    """
    block = {"file": f"{OTHERS}/{name}.py", "batch_size": 4, "recipe": asdict(recipe)}
    records = measured(monkeypatch, 2, **{name: block})
    assert trained(records, name, 1, recipe) == {"single device"}
    assert trained(records, name, 2, recipe) == sharing(recipe)
    assert saved(records, 2) == SAVED
    for strategy in IN_STAGES:
        (note,) = notes(records, strategy)
        assert note.startswith(why)
    assert notes(records, "tensor parallel") == {"the workload has no tensor_plan(model)"}
    (alone,) = [record for record in records if record.metric == "stage_time"]
    assert (alone.status, alone.note) == ("skipped", note)


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


UNLIKE = "blocks(model), one after another, do not compute what the model does"


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (nn.Identity(), UNLIKE),
        (nn.Flatten(0), UNLIKE),
        (Pair(), f"{UNLIKE}: TypeError: a block returns a tuple, not one tensor"),
    ],
    ids=["other values", "another shape", "two tensors"],
)
def test_blocks_that_do_not_compute_what_the_model_does_cannot_be_cut(
    last: nn.Module, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Workload("shared_layer", f"{ROOT}/{OTHERS}/shared_layer.py", "{}", 4, seed=0)
    own = mine.module.blocks
    monkeypatch.setattr(mine.module, "blocks", lambda model: [*own(model), last])
    with pytest.raises(CannotBe) as refused:
        balanced_cuts(mine, 2)
    assert str(refused.value) == why


@pytest.mark.workflow
@pytest.mark.parametrize("recipe", [TEXTBOOKS, Recipe("own", "bf16")], ids=["textbooks", "its own, bf16"])
def test_a_model_with_dropout_in_its_attention_is_proven_without_and_counted_with_it(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = {"file": f"{OTHERS}/encoder.py", "batch_size": 4, "recipe": asdict(recipe)}
    records = measured(monkeypatch, 2, encoder=block)
    assert trained(records, "encoder", 1, recipe) == {"single device"}
    assert trained(records, "encoder", 2, recipe) == sharing(recipe) | IN_STAGES - {"torch interleaved 1f1b"}
    assert played(records, 2) == PLAYED


@pytest.mark.workflow
def test_a_transformer_on_four_devices_is_trained_by_every_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe("adamw", "bf16", "blocks", accumulate=2, clip=1.0)
    records = measured(monkeypatch, 4, gpt={"batch_size": 8, "recipe": asdict(recipe), **TINY_GPT})
    several = sharing(recipe) | IN_STAGES | {"tensor parallel"}
    assert trained(records, "gpt", 2, recipe) == several
    assert trained(records, "gpt", 4, recipe) == several | {"data x tensor", "data x pipeline"}
    assert saved(records, 4) == SAVED
    assert not saved(records, 2)
    assert played(records, 2) == played(records, 4) == PLAYED - {"model parallel"}, "which takes one after another"
    steps = {json.dumps(record.case) for record in records if record.metric == "step_time"}
    assert {json.dumps(record.case) for record in records if record.metric == "played_time"} <= steps
    assert notes(records, "DataParallel") == {
        "nn.DataParallel is a silent no-op on a CPU: it would time the single device again"
    }


def test_a_wrong_file_ends_with_one_line_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"workloads.unet.file = .*unet.py: neither model.* takes deep;"):
        measured(monkeypatch, 2, unet={"file": f"{OTHERS}/unet.py", "batch_size": 4, "deep": 3})


@pytest.mark.workflow
def test_by_other_recipes_a_workload_is_trained_on_one_device_and_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"precision": ["float32", "bf16"], "checkpointing": ["none", "selective"]}
    own = {"recipe": {"optimizer": "adamw", "precision": "bf16"}}
    records = measured(monkeypatch, 2, others, gpt={"batch_size": 4, **own, **TINY_GPT})
    by_others = [replace(r, metric="step_time") for r in records if r.metric == OTHER_RECIPE["step_time"]]
    for precision, checkpointing in product(others["precision"], others["checkpointing"]):
        if (precision, checkpointing) == ("bf16", "none"):
            continue  # its own
        recipe = Recipe("adamw", precision, checkpointing)
        axes = {"precision": "bf16" if precision == "bf16" else None}
        axes["checkpointing"] = None if checkpointing == "none" else checkpointing
        found = [record for record in by_others if record.matches(**axes)]
        assert trained(found, "gpt", 1, recipe) == {"single device"}
        assert trained(found, "gpt", 2, recipe) == sharing(recipe) | ON_RANKS_IN_STAGES | {"tensor parallel"}


@pytest.mark.workflow
@pytest.mark.parametrize("first", [True, False])
def test_stages_alone_are_for_the_first_process_of_a_run(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies.shared_decisions, "first", lambda name: first)
    records = measured(monkeypatch, 2, toy={"batch_size": 4})
    assert {"step_time", "local_time", "rank_time"} < {record.metric for record in records if record.status == "ok"}
    metrics = {"stage_time", "played_time", "played_bubble"}
    assert ({record.metric for record in records} & metrics) == (metrics if first else set())


@pytest.mark.workflow
def test_what_a_device_cannot_hold_has_failed_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four samples are too many for one device; their halves and their quarters are not."""
    records = measured(monkeypatch, 2, small_device={"file": f"{OTHERS}/small_device.py", "batch_size": 4})
    steps = [record for record in records if record.metric == "step_time"]
    failed = {str(record.case["strategy"]): record.reason for record in steps if record.status == "failed"}
    assert failed == dict.fromkeys(("single device", "model parallel"), Reason.OUT_OF_MEMORY)
    (needed,) = [record for record in records if record.metric == "model_operations"]
    assert (needed.samples, needed.case["units"]) == ([[352.0]], 1), "3 x 128, but for 32 of the gradient of the inputs"
    assert trained(records, "small_device", 2) >= {"DDP", "FSDP parameters", "our gpipe", "torch gpipe"}
    assert played(records, 2) == {"our gpipe", "our 1f1b"}


@pytest.mark.workflow
def test_what_is_not_proven_of_a_model_has_failed_and_the_next_workload_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = {"file": f"{OTHERS}/knows_its_rank.py", "batch_size": 4}
    squared = {"file": f"{OTHERS}/no_mean.py", "batch_size": 4}
    records = measured(monkeypatch, 2, knows_its_rank=wrong, no_mean=squared)
    assert trained(records, "knows_its_rank", 1) == {"single device"}
    (record,) = [r for r in records if r.metric == "step_time" and r.matches(workload="knows_its_rank", strategy="DDP")]
    assert (record.status, record.reason) == ("failed", Reason.NOT_PROVEN)
    assert record.note.startswith("knows_its_rank, 2 devices: parameters after 2 steps (float64): differs by")
    assert trained(records, "no_mean", 2) >= DATA_PARALLEL
    (noted,) = [r for r in records if r.metric == "step_time" and r.matches(workload="no_mean", strategy="DDP")]
    assert noted.note.startswith("its loss is no mean over samples")


def test_a_model_that_cannot_be_trained_costs_its_own_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = {"file": f"{OTHERS}/no_slope.py", "batch_size": 4}
    records = measured(monkeypatch, 1, no_slope=flat, toy={"batch_size": 4})
    (failed,) = [record for record in records if record.status == "failed"]
    assert failed.case == {"workload": "no_slope"}
    assert "2 steps lower the loss at no learning rate" in failed.note
    assert trained(records, "toy", 1) == {"single device"}


@pytest.mark.workflow
def test_the_example_is_llama_and_is_trained_by_every_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose 8 billion parameters are counted without being allocated; a small one is trained."""
    monkeypatch.chdir(ROOT)
    with torch.device("meta"):
        whole = Workload("llama", "examples/llama.py", "{}", 2, seed=0).module.model()
    assert sum(parameter.numel() for parameter in whole.parameters()) == 8_030_261_248
    small = {"layers": 6, "width": 16, "heads": 8, "groups": 4, "hidden": 24, "vocabulary": 32, "sequence": 8}
    recipe = Recipe("adamw", "bf16", "blocks")
    block = {"file": "examples/llama.py", "batch_size": 4, "recipe": asdict(recipe), **small}
    records = measured(monkeypatch, 2, llama=block)
    assert trained(records, "llama", 2, recipe) == sharing(recipe) | IN_STAGES | {"tensor parallel"}


@pytest.mark.workflow
def test_images_channels_last_are_seen_so_by_every_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe("sgd", channels_last=True)
    records = measured(monkeypatch, 2, resnet18_eighth={"batch_size": 4, "recipe": asdict(recipe)})
    pipelines = IN_STAGES - {"torch interleaved 1f1b"}
    assert trained(records, "resnet18_eighth", 2, recipe) >= sharing(recipe) | pipelines
    for record in (record for record in records if record.metric == "step_time" and record.status == "ok"):
        work = {count.name: count.counted for count in record.work}
        assert "FLOPs" not in work or 0.5 < work["channels-last FLOPs"] / work["FLOPs"] <= 1
