"""The Python module of a workload, built in or a file of the user's, and the arguments of its functions."""

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from scalecard.workloads.builtin import gpt, lenet, resnet18, resnet50, toy


def _like(other: ModuleType, model: Callable[..., Any]) -> ModuleType:
    """A module with everything of the other one's, but another model."""
    made = ModuleType(other.__name__)
    vars(made).update(vars(other) | {"model": model})
    return made


DROPOUT = (nn.modules.dropout._DropoutNd,)
BATCH_NORM = nn.modules.batchnorm._BatchNorm
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


def proven_mode(model: nn.Module, training: bool) -> nn.Module:
    """The model in eval mode or, if its file says TRAINING, in training mode with frozen statistics and no dropout."""
    for module in model.train(training).modules():
        if isinstance(module, (*DROPOUT, BATCH_NORM)):
            module.eval()
    return model


def opened(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The same, with the elements of lists and dicts of modules, which have no forward, in their place."""
    found = list[nn.Module]()
    for module in modules:
        found += opened(module.children()) if isinstance(module, nn.ModuleList | nn.ModuleDict) else [module]
    return found


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The repeated layers within a module and what is beside them; the module itself if it has none.

    They are of one class of the model's own, one after another in a list or a sequence: as decoder layers are.
    """
    inner = opened(module.children())
    if isinstance(module, nn.Sequential) and _repeats(module):
        return inner
    if not any(_repeats(each) for each in list(module.modules())[1:]):
        return [module]
    return [unit for child in inner for unit in layers_of(child)]


def _repeats(module: nn.Module) -> bool:
    kinds = [type(each) for each in module.children() if next(each.children(), None) is not None]
    return isinstance(module, nn.ModuleList | nn.Sequential) and 1 < len(kinds) == len(module) and len(set(kinds)) == 1


def accepted(function: Callable[..., Any]) -> Mapping[str, Any] | None:
    """The names of a function's arguments; None if it takes any."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    return parameters
