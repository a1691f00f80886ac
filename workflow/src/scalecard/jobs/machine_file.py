"""machine.json describes what a platform's results were measured on; it is an input of every measurement."""

import json
from dataclasses import asdict
from pathlib import Path

from scalecard.hardware.machine import Machine, differences, from_facts
from scalecard.jobs.config_file import InvalidConfig
from scalecard.records.atomic import write_atomically
from scalecard.records.files import is_result_file
from scalecard.records.strict_json import load_object


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
        _refuse_other(path, read_machine(path), machine)
    write_atomically(path, text)


def _refuse_other(path: Path, then: Machine, now: Machine) -> None:
    if then.fingerprint != now.fingerprint:
        raise InvalidConfig(
            f"{path}: the results under the label '{path.parent.name}' were measured on another machine"
            f" ({differences(then, now)}): set another platform: in config.yaml, or remove that folder"
        )
