"""From a block of config.yaml to an experiment's Spec: every value checked, every error in the user's words.

Types and ranges are pydantic's; the experiments only declare them.
"""

import difflib
import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Annotated, Any, Literal

import pydantic
from annotated_types import Len

from scalecard.measure import Rule

Positive = Annotated[int, pydantic.Field(gt=0)]
Rate = Annotated[float, pydantic.Field(gt=0)]
Sweep = Annotated[tuple[Positive, ...], Len(min_length=1)]
Rates = Annotated[tuple[Rate, ...], Len(min_length=1)]
Dtype = Literal["float32", "tf32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Common:
    """What every experiment gets besides its own block."""

    __pydantic_config__ = pydantic.ConfigDict(extra="forbid")

    devices: Positive | None
    seed: int
    dataset: Literal["auto", "fashion-mnist", "synthetic"]
    data_dir: str
    measure: Rule


def experiment_names() -> list[str]:
    """Every module of scalecard.experiments, in alphabetical order."""
    package = importlib.import_module("scalecard.experiments")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def experiment_module(name: str) -> ModuleType:
    """The module of that name; ValueError says which there are."""
    known = experiment_names()
    if name not in known:
        raise ValueError(f"experiments.{name}: no such experiment{_did_you_mean(name, known)}")
    return importlib.import_module(f"scalecard.experiments.{name}")


def build(name: str, block: dict[str, Any]) -> Any:
    """The Spec of an experiment from its merged block; ValueError with one line a problem."""
    spec = experiment_module(name).Spec
    try:
        return pydantic.TypeAdapter(spec).validate_json(json.dumps(block), strict=True)
    except pydantic.ValidationError as error:
        raise ValueError("\n".join(_lines(name, spec, error))) from error


def _lines(name: str, spec: type, error: pydantic.ValidationError) -> Iterator[str]:
    problems = error.errors(include_url=False)
    for problem in problems:
        path = [part for part in problem["loc"] if isinstance(part, str | int) and "[" not in str(part)]
        if problem["type"] == "too_short" and any(other["loc"][:-1] == problem["loc"] for other in problems):
            continue  # short for want of the values that are wrong themselves
        known = [f.name for f in fields(Rule if path[:-1] == ["measure"] else spec)]
        key = ".".join(["experiments", name, *map(str, path)])
        if problem["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            yield f"{key}: unknown key{_did_you_mean(str(path[-1]), known)}"
        elif problem["type"] in ("missing", "missing_argument"):
            yield f"{key}: missing"
        else:
            value = "" if problem["type"] == "value_error" else f" = {json.dumps(problem['input'])}"
            yield f"{key}{value}: {problem['msg'].removeprefix('Value error, ')}"


def _did_you_mean(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" - did you mean '{near[0]}'?" if near else f" (known: {', '.join(known)})"
