"""config.yaml's `workloads`: which are trained, at which values, and the files that they are made of.

A file of the user's lies in the project's folder, so that it is mounted in containers, and its path is nobody's secret.
Nothing is imported here; the experiment's Spec does that.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scalecard.jobs.inputs import imported_files, with_imports
from scalecard.measuring.spec import did_you_mean
from scalecard.workloads import builtin

SCALES = ("full", "quick")


def problems(workloads: Mapping[str, Mapping[str, Any] | None]) -> Iterator[str]:
    """What is wrong with their names, files and batch sizes, one line each."""
    chosen = {name: values for name, values in workloads.items() if values is not None}
    yield from _same_names(chosen)
    trained = {name: [s for s in SCALES if "batch_size" in at_scale(values, s)] for name, values in chosen.items()}
    for scale in SCALES:
        if all(trained.values()) and not any(scale in scales for scales in trained.values()):
            yield f"workloads: every one is null at the {scale} scale; what trains them needs one"
    for name, values in chosen.items():
        for part, own in ((f"workloads.{name}", values), (f"workloads.{name}.quick", values.get("quick") or {})):
            if "source" in own:
                yield f"{part}.source: set by the workflow; choose another name"
            if part.endswith(".quick") and "file" in own:
                yield f"{part}.file: a workload has one file, the same at both scales"
        if "file" in values:
            if said := _why_unusable(values["file"]):
                yield f"workloads.{name}.file = {values['file']}: {said}"
        elif name not in builtin.NAMES:
            yield f"workloads.{name}: no file, and no built-in workload; {did_you_mean(name, builtin.NAMES)}"
        if not trained[name]:
            yield f"workloads.{name}.batch_size: missing"


def _same_names(workloads: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Modules of two folders with one name: Python would import the first for both."""
    seen: dict[str, Path] = {}
    for name, values in workloads.items():
        file = Path(values.get("file", ""))
        for path in sorted(_sources(file) - {file} if file.is_file() else ()):
            module = os.path.relpath(path, file.parent)
            if seen.setdefault(module, path) != path:
                yield f"workloads.{name}.file = {file}: imports {path}, and another workload {seen[module]}; rename one"


def _why_unusable(file: str) -> str:
    path = Path(file)
    if not file.endswith(".py"):
        return "must be the path of a Python file"
    if path.is_absolute():
        return "must be relative to this folder, because results say it and get published"
    if not path.is_file():
        return "no such file"
    inside = path.resolve().is_relative_to(Path.cwd().resolve())
    return "" if inside else "must lie in this folder or below, because containers see nothing else"


def scaled(workloads: Mapping[str, Mapping[str, Any] | None], scale: str) -> dict[str, dict[str, Any]]:
    """Their values at one scale. Left out are those with `quick: null` or, there, without a batch size.

    Those with a file also have `source`, the SHA-256 of all that they are made of.
    """
    every = {name: at_scale(given, scale) for name, given in workloads.items() if given is not None}
    found = {name: values for name, values in every.items() if "batch_size" in values}
    return {
        name: values | ({"source": _hash(values["file"])} if "file" in values else {}) for name, values in found.items()
    }


def at_scale(block: Mapping[str, Any], scale: str) -> dict[str, Any]:
    """The values of a block of config.yaml at one scale; none at the quick one if that is null."""
    values = {key: value for key, value in block.items() if key != "quick"}
    quick = block.get("quick", {})
    if scale != "quick":
        return values
    return {} if quick is None else values | quick


def files(workloads: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """The files of the user's that are measured, with what they import from their own folders."""
    given = (values["file"] for values in workloads.values() if values and "file" in values)
    return sorted({str(path) for file in given for path in _sources(Path(file))})


def _hash(file: str) -> str:
    hashed = hashlib.sha256()
    for path in sorted(_sources(Path(file))):
        hashed.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return hashed.hexdigest()


def _sources(file: Path) -> set[Path]:
    """A file and what it imports from its own folder, transitively; a file that does not parse imports nothing."""

    def imported(path: Path) -> Iterator[Path]:
        with contextlib.suppress(SyntaxError, ValueError, OSError):
            yield from imported_files(path, file.parent)

    return with_imports([file], imported)
