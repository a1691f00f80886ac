"""A finished measurement is not lost: whether it can be saved is tried before; if that fails, it is kept elsewhere."""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import jsonschema

from scalecard.records.atomic import write_atomically
from scalecard.records.files import as_json, save
from scalecard.records.record import Record, Result

SUFFIX = ".unsaved"  # so that nothing takes it for a result


class NotSaved(OSError):
    """A result could not be written to its file; the message names the file, the reason and what was kept."""


def refuse_unsavable(result: Result, path: Path) -> None:
    """Before anything is measured: NotSaved if a result like this one, which has no records yet, cannot be written.

    Tried on a file of no name in the folder, so nothing is left behind; of a missing folder, in the nearest one above.
    """
    nearest = next(folder for folder in path.absolute().parents if folder.exists())
    try:
        if path.is_dir():
            raise OSError("it is a folder")
        with tempfile.TemporaryDirectory(dir=nearest, prefix=f".{path.name}.") as folder:
            save(replace(result, records=[Record.skipped({}, "not measured yet")]), Path(folder, path.name))
    except (OSError, ValueError) as error:
        raise NotSaved(f"{path}: nothing was measured, because it could not be saved: {_reason(error)}") from error


def save_or_keep(result: Result, path: Path, *, elsewhere: Iterable[Path]) -> None:
    """Save; or keep the result beside its own file or in the first other folder that takes it, and raise NotSaved."""
    try:
        save(result, path)
    except (OSError, ValueError, jsonschema.ValidationError) as error:
        kept = _keep(result, path.name + SUFFIX, [path.parent, *elsewhere])
        raise NotSaved(f"{path}: could not be written: {_reason(error)}. {kept}") from error


def _keep(result: Result, name: str, folders: Iterable[Path]) -> str:
    """Where the result is now, in words. A number that JSON does not know is kept as Python writes it."""
    try:
        text = as_json(result, indent=1)
    except ValueError:
        text = json.dumps(asdict(result))
    tried = []
    for folder in folders:
        try:
            write_atomically(folder / name, text)
        except OSError:
            tried.append(str(folder))
        else:
            return f"What was measured is in {folder / name}"
    return f"What was measured is lost, because nothing could be written to {', '.join(tried)} either"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0]
