"""Facts about the package's source, read with `ast`: what a module imports, its docstring, the fields of its Spec.

Nothing is imported, so this needs neither torch nor a GPU, and takes a tenth of a second.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "scalecard"
SOURCES = Path("workflow/src") / PACKAGE  # relative to the project, as Snakemake compares its inputs


def closure(*modules: str) -> set[Path]:
    """The files of modules ('run', 'experiments.ddp') and of all that they import from the package, transitively."""
    found: set[Path] = set()
    todo = [name for module in modules for name in _with_packages(f"{PACKAGE}.{module}")]
    while todo:
        path = _file(todo.pop())
        if path and path not in found:
            found.add(path)
            todo += _imported(path)
    return found


def title(module: str) -> str:
    """The first line of a module's docstring."""
    text = ast.get_docstring(_tree(SOURCES / f"{module.replace('.', '/')}.py")) or module
    return text.splitlines()[0]


def spec_fields(experiment: str) -> list[str]:
    """The names of the values that an experiment's own Spec declares; none where there is no such experiment."""
    path = SOURCES / "experiments" / f"{experiment}.py"
    if not path.exists():
        return []
    spec = next(n for n in _tree(path).body if isinstance(n, ast.ClassDef) and n.name == "Spec")
    return [n.target.id for n in spec.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]


def _imported(path: Path) -> Iterator[str]:
    """The modules that a file imports from the package; names that are no modules may be among them."""
    for node in ast.walk(_tree(path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.split(".")[0] == PACKAGE:
                yield from _with_packages(name)


def _with_packages(name: str) -> Iterator[str]:
    """'a', 'a.b', 'a.b.c' of 'a.b.c': importing a module runs the packages around it."""
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _file(module: str) -> Path | None:
    """The file of a module or package; None for a name that is neither."""
    path = SOURCES.parent / module.replace(".", "/")
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()), None)


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
