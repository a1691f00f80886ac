"""The Python module of a workload, built in or a file of the user's, and the arguments of its functions."""

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from scalecard.workloads.builtin import gpt, lenet, resnet18, resnet50, toy


def _like(other: ModuleType, model: Callable[..., Any]) -> ModuleType:
    """A module with everything of the other one's, but another model."""
    made = ModuleType(other.__name__)
    vars(made).update(vars(other) | {"model": model})
    return made


BUILT_IN = {
    "gpt": gpt,
    "lenet": lenet,
    "resnet18": resnet18,
    "resnet18_eighth": _like(resnet18, resnet18.eighth),
    "resnet18_printed": _like(lenet, resnet18.printed),
    "resnet18_quarter": _like(resnet18, resnet18.quarter),
    "resnet26_quarter": _like(resnet50, resnet50.resnet26_quarter),
    "resnet50": resnet50,
    "toy": toy,
}


@functools.cache
def loaded(name: str, file: str) -> ModuleType:
    """The module of a built-in workload or, if `file` is not empty, of a file of the user's.

    Its folder is where it may import from. Whatever the file raises passes through.
    """
    if not file:
        return BUILT_IN[name]
    path = Path(file).resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"workload_{name}", path)
    assert spec, "its name ends with .py"
    assert spec.loader, "a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # so that its classes can be pickled
    spec.loader.exec_module(module)
    return module


def accepted(function: Callable[..., Any]) -> Mapping[str, Any] | None:
    """The names of a function's arguments; None if it takes any."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    return parameters
