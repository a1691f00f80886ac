"""One module per experiment, always of the same shape: a docstring, Spec, run(spec, machine), private helpers."""

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import pydantic

from scalecard.measuring.spec import did_you_mean, messages


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
