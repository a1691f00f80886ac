"""Odd values, values out of bounds, and keys in the wrong place are refused by one line each that names the key."""

import datetime
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from scalecard import experiments
from scalecard.jobs import inputs
from scalecard.jobs.config import LONGEST_TEXT, SCHEMA, InvalidConfig, _validator, blocks_of_all_scales, resolve
from scalecard.measuring.spec import MOST, MOST_BYTES, MOST_VALUES
from snakemake.utils import update_config
from support.blocks import CONFIG
from support.projects import ROOT

COMMAND_LINE = 128 * 1024  # bytes: Linux passes no longer argument, and bash -c gets a whole command as one


@pytest.fixture(autouse=True)
def project_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def changed(path: str, value: Any) -> dict[str, Any]:
    """config.yaml with one other value; the last part of the path is its key."""
    *outer, key = path.split(".")
    changes: dict[str, Any] = {key: value}
    for part in reversed(outer):
        changes = {part: changes}
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    update_config(config, changes)
    return config


def problem(config: dict[str, Any]) -> str:
    """The one line about a configuration."""
    try:
        resolve(config, check=False)
    except InvalidConfig as error:
        (line,) = str(error).splitlines()[1:]
    else:
        (line,) = experiments.problems(blocks_of_all_scales(config))
    return line.strip()


ODD = [
    *(datetime.date(2024, 1, 1), b"x", {1}, float("inf"), float("nan"), 2**63, -(2**70), 10**5000),
    *("a\n", "\x1b[31m", "\ud800", "a" * (LONGEST_TEXT + 1)),
]
ANYWHERE = ["data_dir", "seed", "measure.quick.max_seconds", "experiments.ddp.lr", "experiments.ddp.new"]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize(
    "path", ["data_dir", "seed", "measure.quick.max_seconds", "experiments.ddp.lr", "experiments.ddp.new"]
)
def test_an_odd_value_is_named_wherever_it_stands(path: str, value: Any) -> None:
    told = problem(changed(path, value))
    assert told.startswith(f"{path}: ")
    assert told.isascii()
    assert len(told) < 200


@pytest.mark.parametrize("key", [True, 3, None, datetime.date(2024, 1, 1), "a\n", "k" * 200])
def test_an_odd_key_is_named(key: Any) -> None:
    told = problem({**CONFIG, "measure": {**CONFIG["measure"], key: 1}})
    assert "measure" in told.split(": ")[0]
    assert len(told) < 200


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("seed", 2**63 - 100_001),
        ("measure.max_seconds", 7 * 24 * 3600),
        ("measure.quick.max_seconds", 7 * 24 * 3600),
        ("measure.max_rounds", 10**6),
        ("measure.processes", 100),
        ("experiments.ddp.minutes", 7 * 24 * 60),
        ("experiments.ddp.quick.minutes", 7 * 24 * 60),
        ("experiments.ddp.epochs", MOST),
        ("experiments.ddp.quick.epochs", MOST),
        ("experiments.hybrid.lr", 100),
        ("experiments.pipeline.quick.image_size", MOST),
    ],
)
def test_a_value_has_an_upper_bound(path: str, most: int) -> None:
    config = changed(path, most)
    resolve(config, check=False)
    assert experiments.problems(blocks_of_all_scales(config)) == []
    assert problem(changed(path, most + 1)).startswith(path)


def test_bytes_may_be_as_many_as_no_device_has() -> None:
    for name in ("allreduce", "copy_cost"):
        config = changed(f"experiments.{name}.bytes", [MOST_BYTES])
        assert experiments.problems(blocks_of_all_scales(config)) == []
        assert problem(changed(f"experiments.{name}.bytes", [2 * MOST_BYTES])).startswith(f"experiments.{name}.bytes.0")


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("experiments.ddp.quick.minutes", -5, "experiments.ddp.quick.minutes: -5 is less than the minimum"),
        ("experiments.ddp.minutes", 20.0, "experiments.ddp.minutes: 20.0 is not of type 'integer'"),
        ("experiments.ddp.quick", 3, "experiments.ddp.quick: 3 is not of type 'object'"),
        ("experiments.ddp.quick.lr", 0, "experiments.ddp.quick.lr = 0: "),
        ("experiments.ddp.quick.new", 0, "experiments.ddp.quick.new: unknown key; "),
        ("experiments.ddp.new[", 0, "experiments.ddp.new[: unknown key; "),
        ("experiments.ddp", 0, "experiments.ddp: 0 is not of type 'object'"),
        ("experiments.dpp", {}, "experiments.dpp: no such experiment; did you mean 'ddp'?"),
        ("experiments.ddp.devices", 2, "experiments.ddp.devices: not in a block; set devices: once, at the top level"),
        ("experiments.allreduce.quick.nodes", 2, "experiments.allreduce.quick.nodes: not in a block; "),
        ("experiments.ddp.measure", {}, "experiments.ddp.measure: not in a block; "),
        ("measure.quick.quick", {}, "measure.quick.quick: unknown key; "),
        ("measure.quick.min_rounds", 500, "measure.quick: measure.max_rounds = 12: must be at least min_rounds = 500"),
        ("forecast.knee", 80, "forecast.knee: 80 is greater than or equal to the maximum of 1; accepted: "),
        ("forecast.gbit_per_s", 0, "forecast.gbit_per_s: 0 is less than the minimum of 0.1; accepted: "),
        ("forecast.devices_per_node", 0, "forecast.devices_per_node: 0 is less than the minimum of 1; accepted: "),
        ("forecast.latency", 5, "forecast.latency: unknown key; did you mean 'latency_us'?"),
        ("experiments.allreduce.forecast", {}, "experiments.allreduce.forecast: not in a block; "),
        ("nodes", 2.0, "nodes: 2.0 is not of type 'integer'"),
        ("experiments.allreduce.bytes", [4, 8, 4], "experiments.allreduce.bytes: 4 occurs twice"),
        ("experiments.async_timing.dtypes", ["tf32", "tf32"], 'experiments.async_timing.dtypes: "tf32" occurs twice'),
        ("experiments.dp_concise.lrs", [0.1, 0.10], "experiments.dp_concise.lrs: 0.1 occurs twice"),
        ("experiments.ddp.buckets_mib", [None, 1, None], "experiments.ddp.buckets_mib: null occurs twice"),
        ("experiments.ddp.buckets_mib", [*range(1, 5000)], "experiments.ddp.buckets_mib: 4999 values; "),
        ("container.build_args", {"BASE_IMAGE": "x"}, "container.build_args.BASE_IMAGE: this build argument is set by"),
        ("container.build_args", {"-x": "y"}, "container.build_args.-x: the name of a build argument has only"),
        ("container.build_args", {"A": "{x}"}, "container.build_args.A: '{x}' does not match"),
        ("container.base_image", "--privileged", "container.base_image: '--privileged' does not match"),
        ("container.base_image", "{name}", "container.base_image: '{name}' does not match"),
        ("container.image", "-x.sif", "container.image: '-x.sif' does not match"),
        ("data_dir", "{name}", "data_dir: '{name}' does not match"),
        ("data_dir", "-data", "data_dir: '-data' does not match"),
        ("data_dir", "~/data", "data_dir: '~/data' does not match"),
        ("platform", "report.html", "platform: 'report.html' should not be valid under"),
        ("platform", "exports", "platform: 'exports' should not be valid under"),
        ("platform", "a" * 300, "platform: \"aaa"),
        ("platform", "abc\n", "platform: 'abc\\n' has letters that cannot be printed"),
        ("pathvars", 3, "pathvars: unknown key; "),
    ],
)  # fmt: skip
def test_what_could_not_be_used_is_named(path: str, value: Any, told: str) -> None:
    said = problem(changed(path, value))
    assert said.startswith(told)
    assert len(said) < 400


@pytest.mark.parametrize(
    "path", ["seed", "container.engine", "measure.precision", "forecast.knee", "experiments.ddp.lr"]
)
def test_a_missing_key_is_named(path: str) -> None:
    config = changed(path, None)
    *outer, key = path.split(".")
    block = config
    for part in outer:
        block = block[part]
    del block[key]
    assert problem(config) == f"{path}: missing"


def test_a_folder_with_a_colon_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a:b").mkdir()
    monkeypatch.chdir(tmp_path / "a:b")
    assert problem(CONFIG).startswith(f"{tmp_path / 'a:b'}: this folder's path has a ':'")


@pytest.fixture
def longest() -> dict[str, Any]:
    """A configuration whose blocks are about as long as they may be, at both scales."""
    config = changed("data_dir", "d" * LONGEST_TEXT)
    long = {
        "allreduce": {"bytes": [MOST_BYTES - 4 * i for i in range(MOST_VALUES)]},
        "ddp": {key: [MOST - i for i in range(MOST_VALUES)] for key in ("accumulation", "buckets_mib")},
        "dp_concise": {
            "batch_sizes": [MOST - i for i in range(MOST_VALUES)],
            "lrs": [12.345678901234567 + i / 1e4 for i in range(MOST_VALUES)],
        },
    }
    for name, values in long.items():
        config["experiments"][name].update(values, quick=values)
    return config


def test_the_longest_block_fits_into_a_command_line(longest: dict[str, Any]) -> None:
    assert experiments.problems(blocks_of_all_scales(longest)) == []
    blocks = resolve({**longest, "scale": "full"}, check=False).blocks
    assert max(len(shlex.quote(block)) for block in blocks.values()) < COMMAND_LINE / 2


def test_the_check_may_get_more_than_a_command_line_holds(
    longest: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = tmp_path / "python"  # in the place of the interpreter that checks the blocks, a file that it is given
    counts.write_text(f"#!/bin/sh\nwc -c < $4 > {tmp_path}/length\n")
    counts.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(counts))
    monkeypatch.setattr("scalecard.jobs.config.CHECKED", tmp_path / "checked")
    monkeypatch.setattr("scalecard.jobs.config.BLOCKS", tmp_path / "blocks.json")
    resolve(longest, check=True)
    length = len(json.dumps(blocks_of_all_scales(longest)))
    assert int((tmp_path / "length").read_text()) == length > COMMAND_LINE


def test_the_pattern_of_platforms_is_that_of_the_schema() -> None:
    platform = _validator(SCHEMA).schema["properties"]["platform"]
    assert platform["pattern"] == "^[A-Za-z0-9][A-Za-z0-9._-]*$"
    assert platform["maxLength"] == 100
    assert inputs.PLATFORM.pattern == "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
