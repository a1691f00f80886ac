"""The inputs of each rule: the code by its own imports, results, and machine.json; what an edit of a file runs again.

Snakemake reruns a rule if the content of an input has changed. `__init__.py`, which holds the version, and progress.py,
which only prints to the terminal, are not inputs: they affect nothing that was measured or drawn.

What depends on a value, such as a block of config.yaml, is no file's edit: `snakemake -n` says what that runs again.

Source code is read with `ast`: what a module imports, its docstring, the fields of its Spec. Nothing is imported, so
this needs neither torch nor a GPU, and takes less time than parsing every file once.
"""

import ast
import contextlib
import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from scalecard.hardware.facts import PROJECT, ROOT
from scalecard.hardware.machine import Machine, differences, from_facts
from scalecard.jobs.config_file import InvalidConfig
from scalecard.records.atomic import write_atomically
from scalecard.records.files import is_result_file
from scalecard.records.strict_json import load_object
from scalecard.report import night_folders

SOURCES = PROJECT / "workflow" / "src" / "scalecard"
NO_INPUTS = {SOURCES / "__init__.py", SOURCES / "progress.py"}
RESULTS = Path("results")
NOT_PLATFORMS = ("exports", "figures", "logs")
PLATFORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # as config.schema.yaml says
PLATFORM_NAME = "at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit"
REFERENCE = PROJECT / "workflow" / "reference"
TEMPLATES = PROJECT / "workflow" / "report"
DEFINITION = re.compile(r"^(?:@|def |class |async def )", re.MULTILINE)
IMPORT = re.compile(r"\bimport\b")


def of_experiment(name: str) -> list[str]:
    """What `scalecard run NAME` executes."""
    return _files("run", f"experiments.{name}")


def imported_by_ranks(name: str) -> list[str]:
    """What takes an experiment's ranks seconds to import, itself among it; nothing if it launches none."""
    files = closure(f"experiments.{name}")
    if SOURCES / "distributed" / "launch.py" not in files:
        return []
    models = ["torchvision.models"] if SOURCES / "workloads" / "workload.py" in files else []
    return [f"scalecard.experiments.{name}", "torch.distributed.launcher.api", *models]


def digest_of_experiment(name: str) -> str:
    """Names the code that measures; '' outside the project's folder."""
    content = b"".join(Path(path).read_bytes() for path in of_experiment(name))
    return hashlib.sha256(content).hexdigest() if content else ""


def of_image() -> list[str]:
    """What the image is built from, without further packages."""
    names = ("Dockerfile", "scalecard.def", "distribution.sh", "install.sh", "without_torch.awk", "requirements.lock")
    return [str(PROJECT / "docker" / name) for name in names]


def of_figure(name: str) -> list[str]:
    """What `scalecard plot NAME` executes, of an experiment or an answer."""
    room = "answers" if name in answers() else "sections"
    return [*_files("report.figure_files", f"report.{room}.{name}"), *_reference()]


def of_exports() -> list[str]:
    """What `scalecard export` executes, and what it copies and quotes."""
    return [*_files("exports.write_exports"), *_reference(), str(PROJECT / "CITATION.cff"), str(PROJECT / "Snakefile")]


def of_trend() -> list[str]:
    """What `scalecard trend` executes to draw."""
    return _files("report.trend_figure", "report.figure_files")


def histories(platform: str) -> list[str]:
    """The indices of the nights that were kept of this platform, and of the same hardware; one file a platform.

    The nights themselves are no inputs of anything, so a run takes as long whether there are few of them or many.
    """
    return [str(path) for path in night_folders.indices(RESULTS / platform) if is_platform(path.parent.parent.name)]


def of_report() -> list[str]:
    """What `scalecard report` executes, the templates, the published figures and what it shows of docs/."""
    modules = [f"report.sections.{name}" for name in _modules("sections")]
    modules += [f"report.answers.{name}" for name in answers()]
    templates = sorted(str(path) for path in TEMPLATES.glob("*.*") if path.suffix != ".rst")
    shown = [str(PROJECT / "docs" / name) for name in ("glossary.md", "textbook.md")]
    return [*_files("report.render", *modules), *templates, *_reference(), *shown]


def answers() -> list[str]:
    """The questions that are answered from several experiments."""
    return _modules("answers")


def _modules(room: str) -> list[str]:
    return sorted(path.stem for path in (SOURCES / "report" / room).glob("[!_]*.py"))


def result_files(name: str, platform: str) -> list[str]:
    """An experiment's result on this platform, which the workflow makes, then the existing ones of other platforms.

    A broken link, a FIFO or another user's private file would stop the workflow; the report names it instead.
    """
    here = RESULTS / platform / f"{name}.json"
    others = (path for path in RESULTS.glob(f"*/{name}.json") if path != here and is_platform(path.parent.name))
    return [str(here), *sorted(str(path) for path in others if path.is_file() and os.access(path, os.R_OK))]


def is_platform(folder: str) -> bool:
    """Whether a folder under results/ is named like a platform. Paths with other names are given to no job."""
    return bool(PLATFORM.fullmatch(folder)) and folder not in NOT_PLATFORMS


def ignored_folders() -> list[str]:
    """The folders with JSON files that are not named like a platform, as text that any terminal can show."""
    folders = {path.parent for path in RESULTS.glob("*/*.json")}
    return sorted(ascii(str(folder)) for folder in folders if not is_platform(folder.name))


def dataset_of(name: str, dataset: str) -> str:
    """The dataset if the experiment's code uses images, else 'none'."""
    return dataset if SOURCES / "workloads" / "datasets.py" in closure(f"experiments.{name}") else "none"


def _files(*modules: str) -> list[str]:
    return sorted(str(path) for path in closure(*modules) - NO_INPUTS)


def _reference() -> list[str]:
    return sorted(str(path) for path in REFERENCE.glob("*.yaml"))


def closure(*modules: str) -> set[Path]:
    """The files of modules ('run', 'experiments.ddp') and of everything they import from the package, transitively."""
    files = (path for module in modules for path in _files_of(f"scalecard.{module}", SOURCES.parent))
    return with_imports(files, _imported)


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
    return frozenset(imported_files(path, SOURCES.parent))


def imported_files(path: Path, folder: Path) -> Iterator[Path]:
    """The files in a folder that a file there imports, of the packages around them too."""
    for statement in ast.walk(_part_that_imports(path.read_text())):
        base, names = folder, [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
        if isinstance(statement, ast.ImportFrom):
            where = [statement.module] if statement.module else []
            base = path.parents[statement.level - 1] if statement.level else folder
            names = [".".join(where), *(".".join([*where, alias.name]) for alias in statement.names)]
        for name in filter(None, names):
            yield from _files_of(name, base)


def _part_that_imports(text: str) -> ast.Module:
    """What stands before the first definition; all of the file if the word import occurs later."""
    definition = DEFINITION.search(text)
    if definition and not IMPORT.search(text, definition.start()):
        with contextlib.suppress(SyntaxError):  # a string that contains a definition
            return ast.parse(text[: definition.start()])
    return ast.parse(text)


def _files_of(name: str, folder: Path) -> Iterator[Path]:
    """The files in a folder that importing 'a.b.c' runs; 'c' may be a name in 'a.b'."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = folder.joinpath(*parts[:end])
        yield from (found for found in (path / "__init__.py", path.with_suffix(".py")) if found.is_file())


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def read_machine(path: Path) -> Machine:
    """The machine that a machine.json describes; InvalidConfig names a file that does not."""
    try:
        return from_facts(load_object(path))
    except (ValueError, TypeError) as error:
        what = error if isinstance(error, ValueError) else f"{path}: does not describe a machine ({error})"
        raise InvalidConfig(str(what)) from error


def write_machine(path: Path, machine: Machine) -> None:
    """Write machine.json only if its content changes, so that nothing is measured again needlessly.

    InvalidConfig if the folder holds another machine's results, which must not be overwritten.
    """
    text = json.dumps(asdict(machine), indent=1) + "\n"
    if path.exists() and path.read_text() == text:
        return
    if path.exists() and any(map(is_result_file, path.parent.glob("*.json"))):
        then = read_machine(path)
        if then.fingerprint != machine.fingerprint:
            raise InvalidConfig(
                f"{path}: the results under the label '{path.parent.name}' were measured on another machine"
                f" ({differences(then, machine)}): set another platform: in config.yaml, or remove that folder"
            )
    write_atomically(path, text)


def reruns(files: Sequence[Path]) -> Iterator[str]:
    """What is measured again after an edit of a file, and else what is drawn or written again, in words for each file.

    ValueError if one is no file of the project.
    """
    found = [file.resolve() for file in files]
    for path, file in zip(found, files, strict=True):
        if not (path.is_file() and path.is_relative_to(ROOT)):
            raise ValueError(f"{file}: must be a file of the project")
    measured = {name: [*of_experiment(name), *of_image()] for name in experiment_names()}
    drawn = {f"the figure of {name}": of_figure(name) for name in [*experiment_names(), *answers()]}
    others = {"the figure of kept nights": of_trend(), "the exports": of_exports(), "the report": of_report()}
    for path in (path.relative_to(ROOT) for path in found):
        name = str(PROJECT / path)
        if again := _readers(name, measured, "every experiment"):
            yield f"{path}\n  measures again: {', '.join(again)}; then draws and writes what shows them"
        else:
            again = [*_readers(name, drawn, "every figure"), *(other for other, read in others.items() if name in read)]
            yield f"{path}\n  measures nothing again; draws or writes again: {', '.join(again) or 'nothing'}"


def _readers(file: str, jobs: Mapping[str, Sequence[str]], every: str) -> list[str]:
    """The jobs that read a file, among the files that each reads."""
    names = [name for name, read in jobs.items() if file in read]
    return [every] if len(names) == len(jobs) else names
