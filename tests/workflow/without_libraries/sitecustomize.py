"""On PYTHONPATH: Python has what Snakemake brings, and nothing that measures or draws, nor Snakemake's plugins."""

import pkgutil
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MISSING = {"torch", "torchvision", "scipy", "numpy", "pandas", "pyarrow", "matplotlib", "pynvml"}


class _Without(PathFinder):
    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in MISSING else super().find_spec(fullname, path, target)


def _modules(*args: Any) -> Iterator[pkgutil.ModuleInfo]:
    return (found for found in _every(*args) if not found.name.startswith("snakemake_executor_plugin_"))


sys.meta_path = [_Without if finder is PathFinder else finder for finder in sys.meta_path]
_every, pkgutil.iter_modules = pkgutil.iter_modules, _modules
