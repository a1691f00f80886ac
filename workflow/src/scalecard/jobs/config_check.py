"""What is wrong with a merged configuration: odd values, then what config.schema.yaml says, then what is unknown.

The experiments' own values are checked by their Specs.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from scalecard.jobs.source_code import experiment_names
from scalecard.measuring.spec import MOST_VALUES, SHOWN, did_you_mean, shortened

SCHEMA = Path(__file__).parents[3] / "schemas" / "config.schema.yaml"
SHARED_KEYS = ("devices", "dataset", "data_dir", "seed")
NOT_IN_BLOCKS = {*SHARED_KEYS, "nodes", "measure", "forecast", "workloads"}
LONGEST_TEXT = 1_000  # letters
LONGEST_KEY = 100
INT64 = 2**63


def odd_values(value: object, where: str = "") -> Iterator[str]:
    """What no key accepts: texts, keys or lists beyond all use, infinities, dates and the like.

    These come first, because what checks or shows the others cannot handle them.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = f"{where}.{key}".lstrip(".") if isinstance(key, str) else where
            odd_key = _why_odd_key(key)
            yield from [f"{_shown(name)}: {odd_key}"] if odd_key else odd_values(inner, name)
    elif isinstance(value, list | tuple):
        if len(value) > MOST_VALUES:
            yield f"{where}: {len(value)} values; accepted: at most {MOST_VALUES}"
        else:
            for index, inner in enumerate(value):
                yield from odd_values(inner, f"{where}.{index}")
    elif reason := _why_odd(value):
        yield f"{where}: {reason}"


def _why_odd(value: object) -> str:
    """Why a value that is no list or mapping can be used nowhere; empty if it can."""
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, str):
        return _why_odd_text(value)
    if isinstance(value, int):
        return "" if abs(value) < INT64 else "a whole number beyond 64 bits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{value} is not a finite number"
    return f"{_shown(value)} is a {type(value).__name__}; accepted: text, numbers, true, false and null"


def _why_odd_key(key: object) -> str:
    if not isinstance(key, str):
        return f"the key {_shown(key)} is no text; quote it"
    return _why_odd_text(key) or (f"a key of {len(key)} letters" if len(key) > LONGEST_KEY else "")


def _why_odd_text(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        return f"{len(text)} letters; accepted: at most {LONGEST_TEXT}"
    return "" if text.isprintable() else f"{_shown(text)} has letters that cannot be printed"


def _shown(value: object) -> str:
    """In ASCII, and short: what is odd may break a terminal. A number beyond 4300 digits has no decimal form."""
    return ascii(value if isinstance(value, str) else hex(value) if isinstance(value, int) else str(value))[:60]


def schema_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """What config.schema.yaml does not accept, one line each, in the order of the keys."""
    for error in sorted(_validator(SCHEMA).iter_errors(dict(config)), key=lambda e: e.json_path):
        path = [str(part) for part in error.absolute_path]
        where = ".".join(path)
        if error.validator == "additionalProperties":
            known = list(error.schema["properties"])
            for key in sorted(set(error.instance) - set(known)):
                yield f"{'.'.join([*path, key])}: unknown key; {did_you_mean(key, known)}"
        elif error.validator == "required":
            missing = next(key for key in error.validator_value if f"'{key}' is a required" in error.message)
            yield f"{'.'.join([*path, missing])}: missing"
        elif error.validator == "propertyNames" or "propertyNames" in error.absolute_schema_path:
            yield f"{where}.{error.instance}: {error.schema['description']}".lstrip(".")
        else:
            shown = repr(error.instance)
            said = error.message.replace(shown, shortened(error.instance), 1) if len(shown) > SHOWN else error.message
            accepted = error.schema.get("description", "")
            yield f"{where}: {said}" + (f"; accepted: {accepted}" if accepted else "")


@functools.cache
def _validator(schema: Path) -> Any:
    """For JSON Schema 2.0 is an integer; for the jobs that get it, it is not."""
    types = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer)
    strict: Any = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=types)  # type: ignore[no-untyped-call]
    return strict(yaml.safe_load(schema.read_text()))


def _is_integer(checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def block_problems(experiments: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Blocks of no experiment, and values in a block that all experiments share."""
    known = experiment_names()
    for name, block in experiments.items():
        if name not in known:
            yield f"experiments.{name}: no such experiment; {did_you_mean(name, known)}"
        for part, values in ((f"experiments.{name}", block), (f"experiments.{name}.quick", block.get("quick", {}))):
            for key in sorted(NOT_IN_BLOCKS & values.keys()):
                yield f"{part}.{key}: not in a block; set {key}: once, at the top level, for all experiments"
