"""The modules of a folder that have the same shape, by name, and what their docstrings say."""

import importlib
import pkgutil
from types import ModuleType


def names(package: ModuleType) -> list[str]:
    """Every module in a package, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def load(package: ModuleType, name: str) -> ModuleType:
    """A module of a package; ValueError says which ones exist."""
    if name not in names(package):
        what = package.__name__.rpartition(".")[2].removesuffix("s")
        raise ValueError(f"no {what} named '{name}' (known: {', '.join(names(package))})")
    return importlib.import_module(f"{package.__name__}.{name}")


def title(module: ModuleType) -> str:
    """The question that a module answers: the first line of its docstring."""
    return _docstring(module)[0]


def how_to_read(module: ModuleType) -> str:
    """What its docstring says about its figure."""
    return _docstring(module)[1]


def _docstring(module: ModuleType) -> tuple[str, str]:
    first, _, rest = (module.__doc__ or module.__name__).partition("\n")
    return first.strip(), " ".join(rest.split())
