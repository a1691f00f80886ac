"""From config.yaml to what the rules need: checked, scaled, merged; the platform and its folder.

No torch here: this runs on every start of the workflow. The experiments' own values are checked by their Specs, which
need torch, so that check runs in a process of its own, and once only for the same values and the same code.
"""

import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from scalecard import machine as machines
from scalecard.schema import NO_RESULTS, write_atomically

SOURCES = Path("workflow/src/scalecard")
SCHEMA = Path(__file__).parents[2] / "schemas" / "config.schema.yaml"
CHECKED = Path(".snakemake/scalecard-checked")
SHARED_KEYS = ("devices", "dataset", "data_dir", "seed")
SCALES = ("full", "quick")
DEFAULT_MINUTES = 60
REPORTING = ("report.py", "tables.py", "state.py", "normal.py", "compare.py", "compare_views.py", "pages.py")
NOT_MEASURING = {
    *("__main__.py", "settings.py", "spread.py", "leftovers.py", "pods.py"),
    *("sources.py", "reference.py", "limits.py", "units.py", *REPORTING),
}
DRAWING = (
    *("schema.py", "stats.py", "machine.py", "reference.py", "limits.py", "units.py"),
    *(f"sections/{name}.py" for name in ("__init__", "style", "charts", "words")),
)


class InvalidConfig(ValueError):
    """The configuration cannot be used: one line a problem, with key, value and what is accepted."""


@dataclass(frozen=True)
class Settings:
    """The platform's label, this machine, the scale ('full' or 'quick'), and each experiment's block as JSON."""

    platform: str
    cluster: str
    machine: machines.Machine
    scale: str
    strict: bool
    container: dict[str, Any]
    dataset: str
    data_dir: str
    blocks: dict[str, str]
    minutes: dict[str, int]
    nodes: dict[str, int]


def resolve(config: Mapping[str, Any], *, check: bool) -> Settings:
    """Settings from the merged configuration, or InvalidConfig with every problem. `check` runs the Specs' checks."""
    problems = list(_schema_problems(config)) or list(_cluster_problems(config))
    if problems:
        raise InvalidConfig(_message(problems))
    machine = machines.probe()
    most = len(machine.gpus) or max(machine.cores, machines.MAX_CPU_DEVICES)
    if config["cluster"] == "none" and (config["devices"] or 0) > most:
        what = "the GPUs that are here" if machine.gpus else "without GPUs, on this number of cores"
        raise InvalidConfig(_message([f"devices = {config['devices']}: must be at most {most}, {what}"]))
    scale = config["scale"]
    if scale == "auto":
        scale = "quick" if machine.emulated else "full"
    scales = {each: {name: merged_block(config, name, each) for name in config["experiments"]} for each in SCALES}
    blocks = scales[scale]
    minutes = {name: _scaled(own, scale).get("minutes", DEFAULT_MINUTES) for name, own in config["experiments"].items()}
    if check:
        _check_blocks(scales)  # both, or a value of the other one would be wrong without a word
    platform = machine.slug if config["platform"] == "auto" else config["platform"]
    return Settings(
        platform=platform,
        cluster=config["cluster"],
        machine=machine,
        scale=scale,
        strict=config["strict"],
        container=dict(config["container"]),
        dataset=config["dataset"],
        data_dir=config["data_dir"],
        blocks={name: json.dumps(block) for name, block in blocks.items()},
        minutes=minutes,
        nodes={name: block.get("nodes", 1) for name, block in blocks.items()},
    )


def merged_block(config: Mapping[str, Any], name: str, scale: str) -> dict[str, Any]:
    """What the experiment's Spec is built from: the shared values, and its own ones at this scale."""
    shared = {key: config[key] for key in SHARED_KEYS} | {"measure": _scaled(config["measure"], scale)}
    if spans_nodes(name):
        shared["nodes"] = config["nodes"]
    own = _scaled(config["experiments"][name], scale)
    own.pop("minutes", None)  # what is asked of a cluster's scheduler changes no measurement
    return {**shared, **own}


def _scaled(block: Mapping[str, Any], scale: str) -> dict[str, Any]:
    values = {key: value for key, value in block.items() if key != "quick"}
    return values | block.get("quick", {}) if scale == "quick" else values


def _schema_problems(config: Mapping[str, Any]) -> Iterator[str]:
    validator = jsonschema.Draft202012Validator(yaml.safe_load(SCHEMA.read_text()))
    for error in sorted(validator.iter_errors(dict(config)), key=lambda e: e.json_path):
        where = ".".join(map(str, error.absolute_path))
        if error.validator == "additionalProperties":
            known = list(error.schema["properties"])
            for key in sorted(set(error.instance) - set(known)):
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
                yield f"{where}.{key}: unknown key; {hint}".lstrip(".")
        else:
            accepted = error.schema.get("description", "")
            yield f"{where}: {error.message}" + (f"; accepted: {accepted}" if accepted else "")


def _cluster_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """On a cluster the machine that runs the workflow is not the one that is measured: nothing can be guessed here."""
    cluster, profile = config["cluster"], f"profiles/{config['cluster']}/config.yaml"
    if cluster != "none":
        for key, accepted in {"platform": "a label for the kind of node", "scale": "full or quick"}.items():
            if config[key] == "auto":
                yield f"{key} = auto: this is not the machine that is measured; set {accepted} in {profile}"
    if config["nodes"] > 1 and cluster != "slurm":
        yield f"nodes = {config['nodes']}: only `snakemake --workflow-profile slurm` starts a job on several nodes"


def _check_blocks(scales: dict[str, Any]) -> None:
    text = json.dumps(scales)
    key = hashlib.sha256(text.encode() + b"".join(Path(p).read_bytes() for p in all_sources())).hexdigest()
    if CHECKED.exists() and CHECKED.read_text() == key:
        return
    environment = os.environ | {"PYTHONPATH": str(SOURCES.parent.resolve())}
    command = [sys.executable, "-m", "scalecard", "check", text]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 2:
        raise InvalidConfig(_message(done.stderr.strip().splitlines()))
    if done.returncode:
        raise InvalidConfig(f"the configuration could not be checked:\n{done.stderr[-2000:]}")
    write_atomically(CHECKED, key)


def _message(problems: list[str]) -> str:
    return "config.yaml is not valid:\n" + "\n".join(f"  {problem}" for problem in problems)


def write_machine(path: Path, machine: machines.Machine) -> None:
    """Write machine.json only where its content changes: it is an input of every measurement.

    InvalidConfig where results of another machine lie under the same label: they are not to be measured over.
    """
    text = json.dumps(asdict(machine), indent=1) + "\n"
    if path.exists() and path.read_text() == text:
        return
    if path.exists() and any(other.name not in NO_RESULTS for other in path.parent.glob("*.json")):
        _refuse_another(path, machine)
    write_atomically(path, text)


def _refuse_another(path: Path, machine: machines.Machine) -> None:
    then, now = machines.from_facts(json.loads(path.read_text())), machine
    if then.fingerprint != now.fingerprint:
        facts = machines.differences(then, now)
        raise InvalidConfig(
            f"{path}: the results under the label '{path.parent.name}' were measured on another machine ({facts}): set"
            " another platform: in config.yaml, or remove that folder"
        )


def all_sources() -> list[str]:
    """Every source file of the package, relative to the project."""
    return sorted(str(path) for path in SOURCES.rglob("*.py"))


def measuring_sources() -> list[str]:
    """What every experiment depends on: not the other experiments, nor what only draws and reports."""
    apart = ("experiments/", "sections/", "containers/")
    relative = [str(Path(path).relative_to(SOURCES)) for path in all_sources()]
    return [str(SOURCES / path) for path in relative if not path.startswith(apart) and path not in NOT_MEASURING]


def drawing_sources() -> list[str]:
    """What every figure depends on besides its section."""
    return [str(SOURCES / path) for path in DRAWING]


def reporting_sources() -> list[str]:
    """What the report is made of besides results and figures."""
    sections = sorted(str(path) for path in (SOURCES / "sections").glob("*.py"))
    templates = sorted(str(path) for path in Path("workflow/report").glob("*.*") if path.suffix != ".rst")
    reference = [f"workflow/reference/{name}.yaml" for name in ("published", "gpu_specs")]
    return [*drawing_sources(), *sections, *(str(SOURCES / name) for name in REPORTING), *templates, *reference]


def result_files(name: str, platform: str) -> list[str]:
    """The result of this platform, which the workflow makes, then those of others that lie there."""
    others = sorted(str(path) for path in Path("results").glob(f"*/{name}.json") if path.parent.name != platform)
    return [f"results/{platform}/{name}.json", *others]


def spans_nodes(name: str) -> bool:
    """Whether the experiment's Spec has a number of nodes."""
    module = SOURCES / "experiments" / f"{name}.py"
    return module.exists() and "    nodes: Positive\n" in module.read_text()


def dataset_of(name: str, dataset: str) -> str:
    """The dataset where the experiment's module loads one, else 'none'."""
    return dataset if "data.load(" in (SOURCES / "experiments" / f"{name}.py").read_text() else "none"


def title(name: str) -> str:
    """The first line of a section module's docstring."""
    found = re.search(r'"""(.+)', (SOURCES / "sections" / f"{name}.py").read_text())
    return found[1].strip().removesuffix('"""') if found else name
