"""Facts about the package's source, read with `ast`: what a module imports, its docstring, the fields of its Spec.

Nothing is imported, so this needs neither torch nor a GPU, and takes less time than parsing every file once.
"""

import ast
import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from scalecard.hardware.facts import PROJECT

PACKAGE = "scalecard"
SOURCES = PROJECT / "workflow" / "src" / PACKAGE
DEFINITION = re.compile(r"^(?:@|def |class |async def )", re.MULTILINE)
IMPORT = re.compile(r"\bimport\b")


def closure(*modules: str) -> set[Path]:
    """The files of modules ('run', 'experiments.ddp') and of everything they import from the package, transitively."""
    return with_imports((path for module in modules for path in files_of(f"{PACKAGE}.{module}")), _imported)


def with_imports(files: Iterable[Path], imported: Callable[[Path], Iterable[Path]]) -> set[Path]:
    """These files and all that they import, transitively; `imported` gives those of one file."""
    found, todo = set[Path](), list(files)
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += imported(path)
    return found


def title(module: str) -> str:
    """The first line of a module's docstring."""
    text = ast.get_docstring(_tree(SOURCES / f"{module.replace('.', '/')}.py")) or module
    return text.splitlines()[0]


def experiment_names() -> list[str]:
    """Every experiment, in alphabetical order: the modules in their folder."""
    return sorted(path.stem for path in (SOURCES / "experiments").glob("[!_]*.py"))


def spec_fields(experiment: str) -> list[str]:
    """The names of the values that an experiment's own Spec declares; empty if there is no such experiment."""
    path = SOURCES / "experiments" / f"{experiment}.py"
    if not path.exists():
        return []
    spec = next(n for n in _tree(path).body if isinstance(n, ast.ClassDef) and n.name == "Spec")
    return [n.target.id for n in spec.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]


@functools.cache
def _imported(path: Path) -> frozenset[Path]:
    """The files of the package that a file imports."""
    names: set[str] = set()
    for statement in ast.walk(_part_that_imports(path)):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            names |= {f"{statement.module}.{alias.name}" for alias in statement.names}
    return frozenset(file for name in names if name.split(".")[0] == PACKAGE for file in files_of(name))


def _part_that_imports(path: Path) -> ast.Module:
    """What stands before the first definition; all of the file if the word import occurs later."""
    text = path.read_text()
    definition = DEFINITION.search(text)
    if definition and not IMPORT.search(text, definition.start()):
        with contextlib.suppress(SyntaxError):  # a string that contains a definition
            return ast.parse(text[: definition.start()])
    return _tree(path)


def files_of(name: str, folder: Path | None = None) -> Iterator[Path]:
    """The files in a folder that importing 'a.b.c' runs, of the packages around it too; 'c' may be a name in 'a.b'."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = (folder or SOURCES.parent).joinpath(*parts[:end])
        yield from (found for found in (path / "__init__.py", path.with_suffix(".py")) if found.is_file())


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
