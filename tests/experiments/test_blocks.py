"""A bad value of an experiment is an error that names its key, the value and what is accepted."""

import json
from typing import Any

import pytest
from scalecard import experiments
from support.blocks import block


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("pipeline", {"split_sizes": [1, 121]}, ["split_sizes = 121", "batch_size = 120"]),
        ("pipeline", {"split_sizes": []}, ["experiments.pipeline.split_sizes = []"]),
        ("pipeline", {"split_sizes": [10, 5, 10]}, ["experiments.pipeline.split_sizes", "10 occurs twice"]),
        ("copy_cost", {"memory": ["pinned", "pinned"]}, ["experiments.copy_cost.memory", '"pinned" occurs twice']),
        ("pipeline", {"split_size": [1]}, ["experiments.pipeline.split_size: unknown key", "'split_sizes'"]),
        ("async_timing", {"dtypes": ["float31"]}, ['dtypes.0 = "float31"', "'float32', 'tf32' or 'bfloat16'"]),
        ("async_timing", {"size": "big"}, ['experiments.async_timing.size = "big"', "integer"]),
        ("async_timing", {"size": 0}, ["experiments.async_timing.size = 0", "greater than 0"]),
        ("async_timing", {"nodes": 2}, ["experiments.async_timing.nodes: unknown key"]),
        ("dp_scratch", {"lr": -1}, ["experiments.dp_scratch.lr = -1", "greater than 0"]),
        ("allreduce", {"bytes": [6]}, ["bytes = 6", "multiple of 4"]),
        ("ddp", {"models": ["vgg"]}, ['experiments.ddp.models.0 = "vgg"', "'lenet', 'resnet18' or 'resnet18_quarter'"]),
        ("tensor_parallel", {"models": ["lenet", "lenet"]}, ["tensor_parallel.models", '"lenet" occurs twice']),
        ("tensor_parallel", {"batch_size": 0}, ["experiments.tensor_parallel.batch_size = 0", "greater than 0"]),
        ("ddp", {"devices": 0}, ["experiments.ddp.devices = 0"]),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(name: str, changes: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ValueError, match=name) as error:
        experiments.build(name, block(name, **changes))
    for part in named:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"presision": 1}, ["measure.presision: unknown key", "'precision'"]),
        ({"precision": 2}, ["measure.precision = 2", "less than 1"]),
        ({"processes": 0}, ["measure.processes = 0"]),
        ({"max_rounds": 3}, ["measure.max_rounds = 3", "min_rounds = 12"]),
    ],
)
def test_a_bad_value_of_measure_is_named_too(changes: dict[str, Any], named: list[str]) -> None:
    measure = {**json.loads(block("allreduce"))["measure"], **changes}
    with pytest.raises(ValueError, match=r"experiments\.allreduce") as error:
        experiments.build("allreduce", block("allreduce", measure=measure))
    for part in named:
        assert part in str(error.value)


def test_every_problem_of_a_block_has_its_line() -> None:
    with pytest.raises(ValueError, match=r"lr") as error:
        experiments.build("ddp", block("ddp", models=["vgg"], lr="fast", epochs=0))
    lines = str(error.value).splitlines()
    assert sorted(line.split(" = ")[0] for line in lines) == [
        "experiments.ddp.epochs",
        "experiments.ddp.lr",
        "experiments.ddp.models.0",
    ]


def test_a_missing_value_is_named() -> None:
    values = json.loads(block("allreduce"))
    del values["bytes"]
    with pytest.raises(ValueError, match=r"^experiments\.allreduce\.bytes: missing$"):
        experiments.build("allreduce", json.dumps(values))


def test_an_unknown_experiment_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"^experiments\.al_reduce: .*'allreduce'"):
        experiments.build("al_reduce", "{}")
