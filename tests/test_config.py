"""Bad input: one clear error with key, value and what is accepted, before anything starts; and the contracts."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, snakemake
from scalecard import sections, settings, specs

CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text())
SMOKE = yaml.safe_load((ROOT / "tests" / "smoke.yaml").read_text())


def block(name: str, scale: str = "full", **changes: Any) -> dict[str, Any]:
    return {**settings.merged_block(CONFIG, name, scale), **changes}


def test_one_name_everywhere() -> None:
    on_disk = specs.experiment_names()
    assert sorted(CONFIG["experiments"]) == on_disk
    assert sorted(SMOKE["experiments"]) == on_disk
    assert sections.names() == on_disk


@pytest.mark.parametrize("name", CONFIG["experiments"])
@pytest.mark.parametrize("scale", ["full", "quick"])
def test_every_block_makes_a_spec_and_every_module_has_the_shape(name: str, scale: str) -> None:
    module = specs.experiment_module(name)
    assert dataclasses.is_dataclass(specs.build(name, block(name, scale)))
    assert module.__doc__.count("\n\n") >= 2, "a question, and what would make the answer wrong"
    assert not [f.name for f in dataclasses.fields(module.Spec) if f.default is not dataclasses.MISSING]
    section = sections.load(name)
    assert section.__doc__.splitlines()[0].endswith("?")
    assert callable(section.plot)
    assert callable(section.findings)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("pipeline", {"split_sizes": [1, 121]}, "split_sizes = 121: must be at most batch_size = 120"),
        ("pipeline", {"split_sizes": []}, "experiments.pipeline.split_sizes = []"),
        ("pipeline", {"split_size": [1]}, "experiments.pipeline.split_size: unknown key - did you mean 'split_sizes'?"),
        ("async_timing", {"dtypes": ["float31"]}, "'float32', 'tf32' or 'bfloat16'"),
        ("async_timing", {"size": "big"}, 'experiments.async_timing.size = "big": Input should be a valid integer'),
        ("async_timing", {"size": 0}, "experiments.async_timing.size = 0: Input should be greater than 0"),
        ("dp_scratch", {"lr": -1}, "experiments.dp_scratch.lr = -1: Input should be greater than 0"),
        ("allreduce", {"bytes": [6]}, "bytes = 6: must be a multiple of 4"),
        ("ddp", {"models": ["vgg"]}, "'lenet' or 'resnet18'"),
        ("ddp", {"devices": 0}, "experiments.ddp.devices = 0"),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(name: str, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is checked below
        specs.build(name, block(name, **changes))
    assert expected in str(error.value)
    assert name in str(error.value)


def test_a_missing_value_and_an_unknown_experiment() -> None:
    values = block("allreduce")
    del values["bytes"]
    with pytest.raises(ValueError, match=r"experiments\.allreduce\.bytes: missing"):
        specs.build("allreduce", values)
    with pytest.raises(ValueError, match=r"experiments\.al_reduce: no such experiment - did you mean 'allreduce'"):
        specs.build("al_reduce", values)


def test_all_top_level_problems_at_once() -> None:
    config = {**CONFIG, "devices": 0, "sclae": "full", "dataset": "mnist", "platform": "a b"}
    with pytest.raises(settings.InvalidConfig) as error:
        settings.resolve(config, check=False)
    for part in (
        "devices: 0 is less than the minimum of 1; accepted: a positive number",
        "sclae: unknown key; did you mean 'scale'?",
        "dataset: 'mnist' is not one of",
        "platform: 'a b' does not match",
    ):
        assert part in str(error.value)


def test_snakemake_shows_one_error_and_no_traceback_before_any_job(project: Path) -> None:
    bad = project / "bad.yaml"
    bad.write_text(json.dumps({"experiments": {"pipeline": {"split_sizes": [500]}, "allreduce": {"bites": [4]}}}))
    done = snakemake(project, "--configfile", "bad.yaml", "--config", "scale=full")
    assert done.returncode != 0
    assert "split_sizes = 500: must be at most batch_size = 120" in done.stdout
    assert "experiments.allreduce.bites: unknown key - did you mean 'bytes'?" in done.stdout
    assert "Traceback" not in done.stdout
    assert "rule " not in done.stdout
    bad.write_text(
        json.dumps({"measure": {"quick": {"presision": 1}}, "experiments": {"ddp": {"models": ["vgg"], "lr": "fast"}}})
    )
    done = snakemake(project, "--configfile", "bad.yaml", "--config", "scale=quick")
    problems = done.stdout.split("config.yaml is not valid:")[1].splitlines()[1:4]
    assert {line.split(":")[0].strip() for line in problems} == {
        "measure.presision",
        'experiments.ddp.models.0 = "vgg"',
        'experiments.ddp.lr = "fast"',
    }, "what all share once, what is shadowed at this scale too"
    assert done.stdout.count("did you mean 'precision'?") == 1
    done = snakemake(project, "--config", "devices=0")
    assert "devices: 0 is less than the minimum of 1" in done.stdout
    done = snakemake(project, "--config", "devices=999")
    assert "devices = 999: must be at most" in done.stdout
