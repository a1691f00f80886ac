"""Blocks of config.yaml, as the jobs get them: merged for one experiment and scale, as a JSON text."""

import json
from typing import Any

import yaml
from scalecard.jobs import workloads
from scalecard.jobs.config import merged_block, trains_workloads
from snakemake.utils import update_config

from support.projects import ROOT

CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "config.yaml").read_text())
SMOKE: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "smoke.yaml").read_text())
# The `measure` block of tests that need samples, and not what they say.
SHORTEST = {
    "warmup_seconds": 0,
    "block_seconds": 0,
    "min_rounds": 2,
    "max_rounds": 2,
    "min_seconds": 0,
    "max_seconds": 5,
    "precision": 0.5,
    "processes": 1,
}


def block(name: str, scale: str = "full", **changes: Any) -> str:
    """An experiment's block of config.yaml, with changed values."""
    merged = merged_block(CONFIG, name, scale)
    merged.pop("leave_out", None)  # tests in a folder of their own do not see which experiments train workloads
    return json.dumps({**merged, **changes})


def smoke_block(name: str, **changes: Any) -> str:
    """Its block at the scale of tests/smoke.yaml, with changed values."""
    own = SMOKE["experiments"][name]
    always = {key: value for key, value in own.items() if key != "quick"}
    if trains_workloads(name):
        always["workloads"] = workloads.scaled(_merged(CONFIG["workloads"], SMOKE["workloads"]), "quick")
    return block(name, "quick", **{**always, **own["quick"], "dataset": "synthetic", "measure": SHORTEST, **changes})


def _merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = json.loads(json.dumps(values))
    update_config(merged, changes)
    return merged
