"""Turns config.yaml into what the rules need: checked, scaled and merged values.

No torch here: this runs on every start of the workflow. config_file.py checks the files before they are merged. The
experiments' own values are checked by their Specs, which need torch: in a process of its own, or in the image. What
passed is remembered, so that only other values and other code are checked. A host that only starts containers has no
torch: there the image is asked. Where it is still to be built, the rule that builds it asks, so that a wrong value
stops the workflow before anything is measured.
"""

import functools
import hashlib
import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from scalecard.hardware import isolation, vendors
from scalecard.hardware.machine import MAX_CPU_DEVICES, Machine, probe
from scalecard.jobs import needs, workloads
from scalecard.jobs.config_file import InvalidConfig
from scalecard.jobs.containers import build, launch
from scalecard.jobs.containers.launch import Marker, read_marker
from scalecard.jobs.inputs import SOURCES, experiment_names, spec_fields
from scalecard.jobs.plan import job_minutes, shares
from scalecard.measuring.spec import MOST_VALUES, SHOWN, did_you_mean, shortened
from scalecard.records.atomic import write_atomically

SCHEMA = Path(__file__).parents[3] / "schemas" / "config.schema.yaml"
SHARED_KEYS = ("devices", "dataset", "data_dir", "seed")
NOT_IN_BLOCKS = {*SHARED_KEYS, "nodes", "hosts", "measure", "forecast", "workloads"}
LONGEST_TEXT = 1_000  # letters
LONGEST_KEY = 100
INT64 = 2**63
BLOCKS = Path(".snakemake/scalecard-blocks.json")  # what is checked: longer than a command line may be
CHECKED = Path(".snakemake/scalecard-checked")
HOST = Marker(engine="none", why="")


def odd_values(value: object, where: str = "") -> Iterator[str]:
    """What no key accepts: texts, keys or lists beyond all use, infinities, dates and the like.

    These come first, because what checks or shows the others cannot handle them.
    """
    match value:
        case Mapping():
            for key, inner in value.items():
                name = f"{where}.{key}".lstrip(".") if isinstance(key, str) else where
                odd_key = _why_odd_key(key)
                yield from [f"{_shown(name)}: {odd_key}"] if odd_key else odd_values(inner, name)
        case list() | tuple() if len(value) > MOST_VALUES:
            yield f"{where}: {len(value)} values; accepted: at most {MOST_VALUES}"
        case list() | tuple():
            for index, inner in enumerate(value):
                yield from odd_values(inner, f"{where}.{index}")
        case str() if odd := _why_odd_text(value):
            yield f"{where}: {odd}"
        case int() if abs(value) >= INT64:
            yield f"{where}: a whole number beyond 64 bits"
        case float() if not math.isfinite(value):
            yield f"{where}: {value} is not a finite number"
        case str() | bool() | int() | float() | None:
            pass
        case _:
            kind = type(value).__name__
            yield f"{where}: {_shown(value)} is a {kind}; accepted: text, numbers, true, false and null"


def _why_odd_key(key: object) -> str:
    if not isinstance(key, str):
        return f"the key {_shown(key)} is no text; quote it"
    return _why_odd_text(key) or (f"a key of {len(key)} letters" if len(key) > LONGEST_KEY else "")


def _why_odd_text(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        return f"{len(text)} letters; accepted: at most {LONGEST_TEXT}"
    return "" if text.isprintable() else f"{_shown(text)} has letters that cannot be printed"


def _shown(value: object) -> str:
    """In ASCII, and short: what is odd may break a terminal. A number beyond 4300 digits has no decimal form."""
    return ascii(value if isinstance(value, str) else hex(value) if isinstance(value, int) else str(value))[:60]


def schema_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """What config.schema.yaml does not accept, one line each, in the order of the keys."""
    for error in sorted(_validator(SCHEMA).iter_errors(dict(config)), key=lambda e: e.json_path):
        path = [str(part) for part in error.absolute_path]
        where = ".".join(path)
        if error.validator == "additionalProperties":
            known = list(error.schema["properties"])
            for key in sorted(set(error.instance) - set(known)):
                yield f"{'.'.join([*path, key])}: unknown key; {did_you_mean(key, known)}"
        elif error.validator == "required":
            missing = next(key for key in error.validator_value if f"'{key}' is a required" in error.message)
            yield f"{'.'.join([*path, missing])}: missing"
        elif error.validator == "propertyNames" or "propertyNames" in error.absolute_schema_path:
            yield f"{where}.{error.instance}: {error.schema['description']}".lstrip(".")
        else:
            shown = repr(error.instance)
            said = error.message.replace(shown, shortened(error.instance), 1) if len(shown) > SHOWN else error.message
            accepted = error.schema.get("description", "")
            yield f"{where}: {said}" + (f"; accepted: {accepted}" if accepted else "")


@functools.cache
def _validator(schema: Path) -> Any:
    """For JSON Schema 2.0 is an integer; for the jobs that get it, it is not."""
    draft = jsonschema.Draft202012Validator
    types = draft.TYPE_CHECKER.redefine("integer", lambda _, v: isinstance(v, int) and not isinstance(v, bool))
    strict: Any = jsonschema.validators.extend(draft, type_checker=types)  # type: ignore[no-untyped-call]
    return strict(yaml.safe_load(schema.read_text()))


def block_problems(experiments: Mapping[str, Mapping[str, Any]], trained: Collection[str]) -> Iterator[str]:
    """Blocks of no experiment, values in a block that all experiments share, and workloads that are not `trained`."""
    known = experiment_names()
    for name, block in experiments.items():
        if name not in known:
            yield f"experiments.{name}: no such experiment; {did_you_mean(name, known)}"
        for part, values in ((f"experiments.{name}", block), (f"experiments.{name}.quick", block.get("quick", {}))):
            for key in sorted(NOT_IN_BLOCKS & values.keys()):
                yield f"{part}.{key}: not in a block; set {key}: once, at the top level, for all experiments"
            for workload in values.get("leave_out", ()):
                if workload not in trained:
                    yield f"{part}.leave_out = {workload}: no such workload; {did_you_mean(workload, sorted(trained))}"


@dataclass(frozen=True)
class Settings:
    """What config.yaml comes to. `blocks` holds each experiment's merged block as the JSON string that its job gets.

    Each experiment `needs` so many seconds for all of its cases, so many of `headlines` for what it measures first, and
    may take `seconds`, its share of the budget.
    `job_minutes` are the time limits for a cluster's jobs, `workload_files` those of the user's that each trains.
    """

    platform: str
    machine: Machine
    scale: str
    blocks: dict[str, str]
    needs: dict[str, float]
    headlines: dict[str, float]
    seconds: dict[str, int]
    job_minutes: dict[str, int]
    nodes: dict[str, int]
    workload_files: dict[str, list[str]]


def resolve(config: Mapping[str, Any], *, check: bool, in_sif: bool = False) -> Settings:
    """Settings from the merged configuration; InvalidConfig lists every problem. `check` runs the Specs' checks.

    `in_sif`: Snakemake itself runs the jobs in docker/scalecard.sif.
    """
    _refuse(_folder_problems(Path.cwd()))
    _refuse(odd_values(config))
    _refuse(schema_problems(config))
    trained = any(map(trains_workloads, config["experiments"]))
    wrong = workloads.problems(config["workloads"]) if trained else ()
    _refuse([*block_problems(config["experiments"], config["workloads"]), *_cluster_problems(config), *wrong])
    _refuse(build.package_problems(config["container"]))
    machine = probe()
    if check and config["cluster"] == "none":
        found = vendors.problems(other_torch=build.brings_torch(config["container"]))
        if found:
            raise InvalidConfig("\n".join(found))
    _refuse(_device_problems(config, machine))
    scale = config["scale"]
    if scale == "auto":
        scale = "quick" if machine.emulated else "full"
    platform = machine.slug if config["platform"] == "auto" else config["platform"]
    if check:  # both scales, so that a wrong value in the unused one is noticed
        _check_blocks(config, Path("results", platform, "container.json"), in_sif=in_sif)
    needed = {name: _seconds_needed(config, name, scale, machine) for name in config["experiments"]}
    first = {name: _seconds_needed(config, name, scale, machine, headline=True) for name in needed}
    files = workloads.files(config["workloads"])
    shared = shares(config["budget"], needed, first, limited=config["cluster"] != "none")
    return Settings(
        platform=platform,
        machine=machine,
        scale=scale,
        blocks=_blocks(config, scale),
        needs=needed,
        headlines=first,
        seconds=shared,
        job_minutes=job_minutes(needed, shared),
        nodes={name: merged_block(config, name, scale).get("nodes", 1) for name in needed},
        workload_files={name: files if trains_workloads(name) else [] for name in needed},
    )


def _seconds_needed(
    config: Mapping[str, Any], name: str, scale: str, machine: Machine, *, headline: bool = False
) -> float:
    """By the block's `minutes` or, without them, an estimate. A cluster's devices are not those of this machine."""
    if stated := workloads.at_scale(config["experiments"][name], scale).get("minutes"):
        return 60.0 * int(stated)
    block = merged_block(config, name, scale)
    devices = config["devices"] or (machine.num_devices if config["cluster"] == "none" else None)
    nodes = int(block.get("nodes", 1))
    return needs.seconds(name, block, scale, devices=devices, nodes=nodes, headline=headline)


def spans_nodes(experiment: str) -> bool:
    """Whether the experiment's Spec has a field `nodes`."""
    return "nodes" in spec_fields(experiment)


def trains_workloads(experiment: str) -> bool:
    """Whether the experiment's Spec has a field `workloads`."""
    return "workloads" in spec_fields(experiment)


def blocks_of_all_scales(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What the Specs check: scale to experiment to merged block, a JSON string."""
    return {scale: _blocks(config, scale) for scale in ("full", "quick")}


def _blocks(config: Mapping[str, Any], scale: str) -> dict[str, str]:
    return {name: json.dumps(merged_block(config, name, scale)) for name in config["experiments"]}


def merged_block(config: Mapping[str, Any], name: str, scale: str) -> dict[str, Any]:
    """The values that the experiment's Spec is built from: the shared ones, and its own at this scale."""
    shared = {key: config[key] for key in SHARED_KEYS} | {"measure": workloads.at_scale(config["measure"], scale)}
    if spans_nodes(name):
        shared["nodes"] = max(config["nodes"], 1 + len(config["hosts"]))
    own = workloads.at_scale(config["experiments"][name], scale)
    own.pop("minutes", None)  # a scheduler's time limit does not change the measurement
    if trains_workloads(name):
        trained, left_out = workloads.scaled(config["workloads"], scale), own.pop("leave_out", ())
        kept = {each: values for each, values in trained.items() if each not in left_out}
        shared["workloads"] = kept or trained  # where nothing else is left to train, it is trained
    return {**shared, **own}


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
    hosts, nodes = config["hosts"], config["nodes"]
    if hosts and cluster != "none":
        yield f"hosts = {shortened(hosts)}: only without a scheduler (cluster: none); accepted here: []"
    elif hosts and nodes not in (1, 1 + len(hosts)):
        yield f"nodes = {nodes}: with this machine and {shortened(hosts)} in hosts, accepted: {1 + len(hosts)}, or 1"
    elif nodes > 1 and cluster != "slurm" and not hosts:
        yield f"nodes = {nodes}: several need `snakemake --workflow-profile slurm`, or the other machines in hosts"


def _device_problems(config: Mapping[str, Any], machine: Machine) -> list[str]:
    most = len(machine.gpus) or max(machine.cores, MAX_CPU_DEVICES)
    if config["cluster"] != "none" or (config["devices"] or 0) <= most:
        return []
    what = "the number of GPUs here" if machine.gpus else "the most CPU workers for this number of cores"
    return [f"devices = {config['devices']}: must be at most {most}, {what}"]


def _check_blocks(config: Mapping[str, Any], marker: Path, *, in_sif: bool) -> None:
    container = config["container"]
    in_image = (container["packages"] or container["image"]) and (in_sif or container["engine"] != "none")
    asked = config["cluster"] == "none" and not in_image  # an image of before lacks packages that are new
    where = spec_place(marker if asked else None)
    check_specs(json.dumps(blocks_of_all_scales(config)), where, in_image=bool(in_image))


def has_torch() -> bool:
    """Whether this Python has PyTorch; nothing is imported."""
    return importlib.util.find_spec("torch") is not None


def spec_place(marker: Path | None) -> Marker | None:
    """Where the Specs can be built: on the host, in the image that this marker names, or nowhere yet.

    No marker: the image is for other machines. Without PyTorch here, each job checks its own block there.
    """
    if has_torch():
        return HOST
    found = read_marker(marker) if marker and marker.exists() else HOST
    return None if found.engine == "none" else found


def check_specs(blocks: str, where: Marker | None, *, in_image: bool = False, just_built: bool = False) -> None:
    """Build every Spec of the blocks, JSON of scale to experiment to block; InvalidConfig lists every problem.

    `in_image`: what the user's files import may be there alone, where each Spec is built again. An image that was not
    `just_built` may be gone; then the rule that builds it asks again.
    """
    own = {"SCALECARD_PACKAGES_IN_IMAGE": "1" if in_image else ""}
    code = (path.read_bytes() for path in sorted(SOURCES.rglob("*.py")))
    key = hashlib.sha256(b"".join([blocks.encode(), json.dumps(own).encode(), *code])).hexdigest()
    if CHECKED.exists() and CHECKED.read_text() == key:
        return
    write_atomically(BLOCKS, blocks)
    if where:
        called = _call(where)
        done = subprocess.run(called.argv, capture_output=True, text=True, env={**called.environment, **own})
        if where.engine != "none" and done.returncode not in (0, 2) and not just_built:
            return
        _refuse_failed(done)
        write_atomically(CHECKED, key)


def check_in_image(made: Marker) -> None:
    """Check what could not be checked without the image; ValueError if there is neither an image nor torch here."""
    if has_torch():
        return
    if made.engine == "none":
        raise ValueError(
            f"no container ({made.why}), and {sys.executable} has no PyTorch to measure without one: run `make`, which"
            " installs the locked one, or start a container engine"
        )
    if BLOCKS.exists():
        check_specs(BLOCKS.read_text(), made, just_built=True)


def _call(where: Marker) -> launch.Call:
    command = [sys.executable if where.engine == "none" else "python", "-m", "scalecard", "check", str(BLOCKS)]
    if where.engine != "none":
        isolation.make_lock_file()
        return launch.call(where, command, project=Path.cwd(), writable=[], gpus=False)
    path = [str(SOURCES.parent.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    return launch.Call(command, os.environ | {"PYTHONPATH": os.pathsep.join(path)})


def _refuse_failed(done: "subprocess.CompletedProcess[str]") -> None:
    """InvalidConfig if the check has found problems, or has failed."""
    if done.returncode == 2:
        _refuse(done.stderr.strip().split("\n"))
    signal = -done.returncode if done.returncode < 0 else done.returncode - 128  # as a shell of a container says it
    if signal > 0:
        raise InvalidConfig(f"the configuration could not be checked: signal {signal}; is memory short?")
    if done.returncode:
        raise InvalidConfig(f"the configuration could not be checked:\n{done.stderr[-2000:]}")


def _refuse(problems: Iterable[str]) -> None:
    """Raise InvalidConfig if there are any."""
    lines = [f"  {problem}" for problem in problems]
    if lines:
        raise InvalidConfig("the configuration is not valid:\n" + "\n".join(lines))
