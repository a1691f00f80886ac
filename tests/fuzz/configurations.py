"""Altered configurations: each is accepted with cause, or refused by errors that name a key that was altered.

Nothing is measured. Each alteration is the text of a file for --configfile, which is checked, merged with config.yaml
(and in half of the cases tests/smoke.yaml) and resolved as the workflow does, and whose blocks the Specs check.
"""

import copy
import json
import math
import random
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from scalecard import experiments
from scalecard.jobs.config import InvalidConfig, Settings, blocks_of_all_scales, resolve
from scalecard.jobs.config_file import parse
from snakemake.utils import update_config

ROOT = Path(__file__).parents[2]
FILE = "my.yaml"
LONGEST_LINE = 600  # letters of an error
COMMAND_LINE = 128 * 1024  # bytes: what Linux passes as one argument, and bash -c gets the whole command as one

# Values as YAML has them, that no key accepts ...
NOWHERE = [
    *(".inf", "-.inf", ".nan", "-5", "-0.5", "18446744073709551616", "9223372036854775808", "1.0e+300", "9" * 5000),
    *("0x10", "010", "1:30", "1:30.5", "1e3", "0b11", "0x" + "f" * 5000, "!!float nan", "!!int 3.5"),
    *("2024-01-01", "2024-01-01T00:00:00Z", "!!binary aGVsbG8=", "!!set {a: null}", "!!omap [a: 1]", "!mine 3"),
    *("!!python/name:os.system", "!!python/object/apply:os.system [true]", "*nothing", "{on: 1}", "{3: 4}", "{[1]: 2}"),
    *(r'"abc\n"', r'"\0"', r'"\e[31m"', r'"\ud800"', r'"\u202Eabc"', '"{name}"', '"a{b"', '"-x"', '"--help"'),
    *("a" * 2000, "[" * 50 + "]" * 50, f"[{', '.join(map(str, range(1, 5000)))}]", "[1, 1]", "[64, 32, 64]", "[[1]]"),
    *("{a: 1, a: 2}", "&a [*a]", '""', "[null, null]", "[.inf]", "[2024-01-01]"),
]
# ... and that some do.
SOMEWHERE = [
    *(
        "0",
        "1",
        "2",
        "3",
        "7",
        "64",
        "1000",
        "100000",
        "100001",
        "1000000",
        "1_000",
        "1099511627776",
        "0.5",
        "1.0",
        "4.0",
    ),
    *("1099511627776", "1000000000000000000", "9223372036854775807", "604800", "604801", "1.0e-300", "1.0e-3"),
    *("true", "false", "null", "~", "[]", "{}", "[1]", "[2, 4]", "[null]", "[null, 1]", "{a: 1}", "{quick: 3}"),
    *("auto", "none", "quick", "text", '"3"', '"true"', '"two words"', "ümläut", "figures", "report.html", "a" * 300),
    *("[float32]", "[fp16, bf16]", "[lenet]", "[0.1, 0.2]", "<<", "=", '"a:b"', "python:3.11", "x.sif", '"../up"'),
]
UNKNOWN_KEYS = [
    "presision",
    "sclae",
    "Nodes",
    "pathvars",
    "__use_yte__",
    "ümläut",
    '"two words"',
    '"a.b"',
    '"a[b"',
    "x" * 300,
]
ODD_KEYS = ["on", "yes", "3", "null", "2024-01-01", "~", ".inf", "? [a]\n", r'"a\n"', "!!binary aGk="]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WHOLE_FILES = [
    *("- a\n- b", "hello", "3", "a: [", "a: {b", "\ta: 1", "a: 1\n---\nb: 2", "a: b: c", "%YAML 9.9\n---\na: 1", "\0"),
    *("&a [*a]", "a: &a {b: *a}", "[" * 3000, "a: " + "[" * 3000, "a: " + "{b: " * 3000, "a: @b", "? [a]\n: b"),
    "!!python/object:os.x {}",
    *(
        f"a: &a {first}\n" + "".join(f"x{n}: &{n} {form.replace('*', '*' + p)}\n" for p, n in pairwise(LETTERS))
        for first, form in (("[x, x]", "[*, *, *]"), ("{x: 1}", "{p: *, q: *, r: *}"))
    ),
]


class Yaml(str):
    """A value or key as it stands in the file."""


@dataclass(frozen=True)
class Altered:
    """A file's text. An error must name one of `names`; `never`: no configuration accepts it."""

    text: str
    names: list[str]
    never: bool


def configurations(seed: int, count: int) -> tuple[dict[str, int], list[str]]:
    """(outcome to number, examples that are neither accepted with cause nor refused clearly) of altered files."""
    draw = random.Random(seed)
    config, smoke = (yaml.safe_load((ROOT / path).read_text()) for path in ("config.yaml", "tests/smoke.yaml"))
    bases = [config, _merged(config, smoke)]
    outcomes, offending = Counter[str](), list[str]()
    for _ in range(count):
        base = draw.choice(bases)
        kind = draw.choices([_values, _unknown, _twice, _missing, _whole, _garbled], [60, 10, 8, 6, 8, 8])[0]
        altered, base = kind(draw, base)
        outcome, complaint = _outcome(altered, base)
        outcomes[f"{kind.__name__[1:]}: {outcome}"] += 1
        if complaint:
            offending.append(f"{complaint}\n    {altered.text[:300]!r}")
    return dict(sorted(outcomes.items())), offending


def _outcome(altered: Altered, base: dict[str, Any]) -> tuple[str, str]:
    """(outcome, what is wrong with it or nothing)."""
    try:
        config = _merged(base, parse(altered.text, FILE) or {})
        settings = resolve(config, check=False)
        wrong = experiments.problems(blocks_of_all_scales(config))
        if wrong:
            raise InvalidConfig("\n".join(wrong))
    except InvalidConfig as error:
        return "refused", _unclear(str(error), altered.names)
    except Exception as error:
        return "TRACEBACK", f"{type(error).__name__}: {str(error)[:200]}"
    if altered.never:
        return "ACCEPTED", "accepted, although no key accepts this"
    return "accepted", "; ".join([*_why_unusable(settings), *_impossible(config["container"])])


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """As Snakemake merges."""
    merged = copy.deepcopy(base)
    update_config(merged, changes)
    return merged


def _unclear(said: str, names: list[str]) -> str:
    """Why an error is not clear; empty if it is."""
    if not any(name in said for name in names) and f"{FILE}, line" not in said.partition(": not valid YAML")[0]:
        return f"names none of {names}: {said[:300]}"
    longest = max(map(len, said.splitlines()))
    if longest > LONGEST_LINE or (not said.isascii() and not said.replace("\n", "").isprintable()):
        return f"a line of {longest} letters, or one that cannot be printed: {said[:100]!r}"
    return "Traceback" if "Traceback" in said else ""


def _why_unusable(settings: Settings) -> Iterator[str]:
    """What a job could not use of accepted settings; written without a look at how they are checked."""
    for name, block in settings.blocks.items():
        if len(shlex.quote(block)) > COMMAND_LINE - 4096:
            yield f"{name}: {len(block)} letters do not fit into a command line"
        yield from (f"{name}: {problem}" for problem in _impossible(json.loads(block)))
        if not 0 <= settings.needs[name] <= 7 * 24 * 3600:
            yield f"{name}: needs {settings.needs[name]} s"
    if not all((letter.isalnum() and letter.isascii()) or letter in "._-" for letter in settings.platform):
        yield f"platform {settings.platform!r}"


def _impossible(value: object) -> Iterator[str]:
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from _impossible(inner)
    if isinstance(value, list) and len(value) != len(set(map(str, value))):
        yield f"twice in {value}"
    if isinstance(value, float) and not (math.isfinite(value) and 0 <= value <= 7 * 24 * 3600):
        yield f"the number {value}"
    if isinstance(value, int) and not 0 <= value < 2**63:
        yield f"the number {value}"
    if isinstance(value, str) and (value[:1] in "-~" or not value.isprintable() or "{" in value):
        yield f"the text {value!r}"


def _values(draw: random.Random, base: dict[str, Any]) -> tuple[Altered, dict[str, Any]]:
    """One to three values, of any level, for odd ones."""
    changes: dict[str, Any] = {}
    names, never = [], False
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        path = draw.choice([*_paths(base), ("container", "build_args", "SOME")])
        nowhere = draw.random() < 0.5
        value: object = Yaml(draw.choice(NOWHERE if nowhere else SOMEWHERE))
        old = _at(base, path)
        if isinstance(old, list) and draw.random() < 0.5:
            value = [*old, value]
        _put(changes, path, value)
        names.append(path[-1])
        never = never or nowhere
    kept = [name for name in names if name in _render(changes)]  # one may have replaced what held another
    return Altered(_render(changes), kept, never and len(names) == 1 and not _fits(names[0], changes)), base


def _fits(name: str, changes: dict[str, Any]) -> bool:
    """Texts that no other key accepts."""
    text = _render(changes)
    return (name == "image" and text.endswith(".sif}}")) or (name == "SOME" and '"-' in text)


def _unknown(draw: random.Random, base: dict[str, Any]) -> tuple[Altered, dict[str, Any]]:
    """A key that no block has, or that is no text."""
    path = draw.choice([path for path in [(), *_paths(base)] if isinstance(_at(base, path), dict)])
    if path[-1:] == ("build_args",):
        path = path[:-1]
    key = draw.choice([*UNKNOWN_KEYS, *ODD_KEYS])
    changes: dict[str, Any] = {}
    _put(changes, (*path, Yaml(key)), Yaml(draw.choice(["3", "text", "{a: 1}", "null", "[1]", "true"])))
    plain = key.strip('"? []\n')[:50]
    return Altered(_render(changes), [plain, *path[-1:], FILE], never=True), base


def _twice(draw: random.Random, base: dict[str, Any]) -> tuple[Altered, dict[str, Any]]:
    """A key that is there twice, with the same value or another."""
    path = draw.choice(_paths(base))
    old = _at(base, path)
    text = f"{path[-1]}: {_render(old)}, {path[-1]}: {_render(draw.choice([old, 1, {}]))}"
    for key in reversed(path[:-1]):
        text = f"{key}: {{{text}}}"
    return Altered(f"{{{text}}}", [path[-1]], never=True), base


def _missing(draw: random.Random, base: dict[str, Any]) -> tuple[Altered, dict[str, Any]]:
    """A key that is there no more, such as in a config.yaml that was edited."""
    path = draw.choice(_paths(base))
    less = copy.deepcopy(base)
    del _at(less, path[:-1])[path[-1]]
    return Altered("", [path[-1]], never=False), less


def _whole(draw: random.Random, base: dict[str, Any]) -> tuple[Altered, dict[str, Any]]:
    """A file that is no mapping, no YAML, or a bomb."""
    return Altered(draw.choice(WHOLE_FILES), [FILE], never=True), base


def _garbled(draw: random.Random, base: dict[str, Any]) -> tuple[Altered, dict[str, Any]]:
    """tests/smoke.yaml with some letters lost, doubled or replaced."""
    letters = list((ROOT / "tests" / "smoke.yaml").read_text())
    for _ in range(draw.choice([1, 2, 5])):
        index = draw.randrange(len(letters))
        letters[index] = draw.choice(["", letters[index] * 2, *"{}[]:,-&*#!|>'\"%@` \n\t0x", "\x00", "\x85", "é"])
    return Altered("".join(letters), [":"], never=False), base


def _paths(base: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every key of a configuration, of every level."""
    if not isinstance(base, dict):
        return []
    return [found for key, inner in base.items() for found in [(*path, key), *_paths(inner, (*path, key))]]


def _at(base: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        base = base.get(key)
    return base


def _put(changes: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for key in path[:-1]:
        if not isinstance(changes.get(key), dict):
            changes[key] = {}
        changes = changes[key]
    changes[path[-1]] = value


def _render(value: object) -> str:
    """YAML's flow style."""
    if isinstance(value, Yaml):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_render(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_render, value)) + "]"
    return json.dumps(value)
