"""Turns config.yaml into what the rules need: checked, scaled and merged values.

No torch here: this runs on every start of the workflow. config_file.py checks the files before they are merged, and
config_check.py the merged values. The experiments' own values are checked by their Specs, which need torch; that check
runs in a separate process, and only if the values or the code have changed.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalecard.hardware import vendors
from scalecard.hardware.machine import MAX_CPU_DEVICES, Machine, probe
from scalecard.jobs import workloads
from scalecard.jobs.config_check import SHARED_KEYS, block_problems, odd_values, schema_problems
from scalecard.jobs.config_file import InvalidConfig
from scalecard.jobs.containers import packages
from scalecard.jobs.plan import estimated, job_minutes, shares
from scalecard.jobs.source_code import SOURCES, spec_fields
from scalecard.records.atomic import write_atomically

CHECKED = Path(".snakemake/scalecard-checked")
SCALES = ("full", "quick")
DEFAULT_MINUTES = 60


@dataclass(frozen=True)
class Settings:
    """The checked configuration. `blocks` holds each experiment's merged block as the JSON string that its job gets.

    Each experiment may take `seconds`, its share of the budget, of its `minutes`. `job_minutes` are the time limits for
    a cluster's jobs.
    """

    platform: str
    cluster: str
    machine: Machine
    scale: str
    strict: bool
    container: dict[str, Any]
    dataset: str
    data_dir: str
    blocks: dict[str, str]
    minutes: dict[str, int]
    seconds: dict[str, int]
    job_minutes: dict[str, int]
    nodes: dict[str, int]
    workload_files: list[str]

    def files_of(self, experiment: str) -> list[str]:
        """The files of the user's that an experiment trains."""
        return self.workload_files if trains_workloads(experiment) else []


def resolve(config: Mapping[str, Any], *, check: bool, in_sif: bool = False) -> Settings:
    """Settings from the merged configuration; InvalidConfig lists every problem. `check` runs the Specs' checks.

    `in_sif`: Snakemake itself runs the jobs in docker/scalecard.sif.
    """
    _refuse(_folder_problems(Path.cwd()))
    _refuse(odd_values(config))
    _refuse(schema_problems(config))
    _refuse([*block_problems(config["experiments"]), *_cluster_problems(config), *_workload_problems(config)])
    _refuse(packages.problems(config["container"]))
    machine = probe()
    if check and config["cluster"] == "none" and (found := vendors.problems()):
        raise InvalidConfig("\n".join(found))
    _refuse(_device_problems(config, machine))
    scale = config["scale"]
    if scale == "auto":
        scale = "quick" if machine.emulated else "full"
    if check:  # both scales, so that a wrong value in the unused one is noticed
        _check_blocks(blocks_of_all_scales(config), in_image=_image_has_more(config["container"], in_sif=in_sif))
    minutes = {name: _minutes(config, name, scale, machine) for name in config["experiments"]}
    shared = shares(config["budget"], minutes, limited=config["cluster"] != "none")
    return Settings(
        platform=machine.slug if config["platform"] == "auto" else config["platform"],
        cluster=config["cluster"],
        machine=machine,
        scale=scale,
        strict=config["strict"],
        container=dict(config["container"]),
        dataset=config["dataset"],
        data_dir=config["data_dir"],
        blocks=_blocks(config, scale),
        minutes=minutes,
        seconds=shared,
        job_minutes=job_minutes(minutes, shared),
        nodes={name: merged_block(config, name, scale).get("nodes", 1) for name in minutes},
        workload_files=workloads.files(config["workloads"]),
    )


def _minutes(config: Mapping[str, Any], name: str, scale: str, machine: Machine) -> int:
    """The most that an experiment may take without a budget. A cluster's devices are not those of this machine."""
    block = merged_block(config, name, scale)
    return estimated(
        _scaled(config["experiments"][name], scale).get("minutes", DEFAULT_MINUTES),
        scale,
        devices=config["devices"] or (machine.num_devices if config["cluster"] == "none" else None),
        nodes=block.get("nodes", 1),
        processes=block["measure"]["processes"],
    )


def spans_nodes(experiment: str) -> bool:
    """Whether the experiment's Spec has a field `nodes`."""
    return "nodes" in spec_fields(experiment)


def trains_workloads(experiment: str) -> bool:
    """Whether the experiment's Spec has a field `workloads`."""
    return "workloads" in spec_fields(experiment)


def blocks_of_all_scales(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What the Specs check: scale to experiment to merged block, a JSON string."""
    return {scale: _blocks(config, scale) for scale in SCALES}


def _blocks(config: Mapping[str, Any], scale: str) -> dict[str, str]:
    """Each experiment's merged block at one scale, as a JSON string."""
    return {name: json.dumps(merged_block(config, name, scale)) for name in config["experiments"]}


def merged_block(config: Mapping[str, Any], name: str, scale: str) -> dict[str, Any]:
    """The values that the experiment's Spec is built from: the shared ones, and its own at this scale."""
    shared = {key: config[key] for key in SHARED_KEYS} | {"measure": _scaled(config["measure"], scale)}
    if spans_nodes(name):
        shared["nodes"] = config["nodes"]
    if trains_workloads(name):
        shared["workloads"] = workloads.scaled(config["workloads"], scale)
    own = _scaled(config["experiments"][name], scale)
    own.pop("minutes", None)  # a scheduler's time limit does not change the measurement
    return {**shared, **own}


def _scaled(block: Mapping[str, Any], scale: str) -> dict[str, Any]:
    values = {key: value for key, value in block.items() if key != "quick"}
    return values | block.get("quick", {}) if scale == "quick" else values


def _folder_problems(folder: Path) -> Iterator[str]:
    if ":" in str(folder):
        yield f"{folder}: this folder's path has a ':', which ends a path in PATH, PYTHONPATH and mounts; rename it"


def _cluster_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """On a cluster the machine that runs the workflow is not the one measured, so nothing can be guessed."""
    cluster, profile = config["cluster"], f"profiles/{config['cluster']}/config.yaml"
    if cluster != "none":
        for key, accepted in {"platform": "a label for the kind of node", "scale": "full or quick"}.items():
            if config[key] == "auto":
                yield f"{key} = auto: this is not the machine that is measured; set {accepted} in {profile}"
    if config["nodes"] > 1 and cluster != "slurm":
        yield f"nodes = {config['nodes']}: only `snakemake --workflow-profile slurm` starts a job on several nodes"


def _workload_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Nothing if no experiment trains them."""
    if any(trains_workloads(name) for name in config["experiments"]):
        yield from workloads.problems(config["workloads"])


def _device_problems(config: Mapping[str, Any], machine: Machine) -> list[str]:
    most = len(machine.gpus) or max(machine.cores, MAX_CPU_DEVICES)
    if config["cluster"] != "none" or (config["devices"] or 0) <= most:
        return []
    what = "the number of GPUs here" if machine.gpus else "the most CPU workers for this number of cores"
    return [f"devices = {config['devices']}: must be at most {most}, {what}"]


def _image_has_more(container: Mapping[str, Any], *, in_sif: bool) -> bool:
    """Whether the experiments are to run in an image that may have packages which are not here."""
    return bool(container["packages"] or container["image"]) and (in_sif or container["engine"] != "none")


def _check_blocks(scales: Mapping[str, Mapping[str, str]], *, in_image: bool) -> None:
    """Build every Spec in a process that imports torch; InvalidConfig lists every problem. Remembers what passed.

    `in_image`: what the user's files import may be in the image alone, where each Spec is built again.
    """
    text = json.dumps(scales)
    own = {"SCALECARD_PACKAGES_IN_IMAGE": "1" if in_image else ""}
    code = (path.read_bytes() for path in sorted(SOURCES.rglob("*.py")))
    key = hashlib.sha256(b"".join([text.encode(), json.dumps(own).encode(), *code])).hexdigest()
    if CHECKED.exists() and CHECKED.read_text() == key:
        return
    path = [str(SOURCES.parent.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | own | {"PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-m", "scalecard", "check"]  # the text may be longer than a command line
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment)
    if done.returncode == 2:
        _refuse(done.stderr.strip().splitlines())
    if done.returncode:
        raise InvalidConfig(f"the configuration could not be checked:\n{done.stderr[-2000:]}")
    write_atomically(CHECKED, key)


def _refuse(problems: Iterable[str]) -> None:
    """Raise InvalidConfig if there are any."""
    lines = [f"  {problem}" for problem in problems]
    if lines:
        raise InvalidConfig("the configuration is not valid:\n" + "\n".join(lines))
