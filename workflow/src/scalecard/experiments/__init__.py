"""One module per experiment, always of the same shape: a docstring, Spec, run(spec, machine), private helpers."""

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import ModuleType
from typing import Any

import pydantic

from scalecard.measuring.spec import Common, did_you_mean, messages


def names() -> list[str]:
    """Every experiment, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> ModuleType:
    """The module of an experiment; ValueError says which ones exist."""
    known = names()
    if name not in known:
        raise ValueError(f"experiments.{name}: no such experiment; {did_you_mean(name, known)}")
    return importlib.import_module(f"{__name__}.{name}")


def build(name: str, block: str) -> Any:
    """The Spec of an experiment from its merged block, a JSON string; ValueError has one line per problem."""
    spec = load(name).Spec
    try:
        return pydantic.TypeAdapter(spec).validate_json(block, strict=True)
    except pydantic.ValidationError as error:
        raise ValueError("\n".join(messages(name, spec, error))) from error


def problems(scales: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What is wrong with the merged blocks of each scale, one line per problem; of a shared value, one for all blocks.

    What is wrong at the quick scale alone stands in a `quick:`, and the line says so.
    """
    found = {
        scale: dict.fromkeys(problem for name, block in blocks.items() for problem in _problems_of(name, block))
        for scale, blocks in scales.items()
    }
    full = found.get("full", {})
    of_quick = [(f"{key}.quick", rest) for key, rest in found.get("quick", {}) if (key, rest) not in full]
    return [f"{key}{rest}" for key, rest in (*full, *of_quick)]


def _problems_of(name: str, block: str) -> Iterator[tuple[str, str]]:
    """(the key of the block, or of the value that all blocks share; the rest of the message) of each problem."""
    try:
        build(name, block)
    except ValueError as error:
        shared = "|".join(field.name for field in fields(Common))
        for line in str(error).splitlines():
            own = f"experiments.{name}"
            rest = line.removeprefix(own)
            match = re.match(rf"\.({shared})\b|: (workloads\.\w+)", rest)
            yield (match[1] or match[2], rest[match.end() :]) if match else (own, rest)
