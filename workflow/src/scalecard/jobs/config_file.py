"""Reads a configuration file strictly: what YAML allows and no configuration means is refused, with file, line and key.

Snakemake reads and merges the files itself. Of a key that is given twice it takes the last without a word, it makes
dates, sets and the key True (of `on:`) of what nobody meant so, and writes out nested aliases. So each file is checked
before: the nodes of its YAML are looked at, and nothing is constructed.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 1_000_000
MOST_VALUES = 100_000  # with every alias written out
DEEPEST = 20
KINDS = ("str", "int", "float", "bool", "null", "seq", "map")
PLAIN_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]{0,30})")
EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+")
SNAKEMAKES = ("pathvars", "__use_yte__")  # keys with which it would do something before anything is checked
ACCEPTED = "text, numbers, true, false, null, lists and mappings"


class InvalidConfig(ValueError):
    """The configuration cannot be used: one line per problem, with key, value and what is accepted."""


def check_files(paths: Iterable[Path]) -> None:
    """InvalidConfig names every problem of every file. A file that is missing is left for Snakemake to name."""
    problems = [problem for path in paths if path.exists() for problem in _problems_of(path)]
    if problems:
        raise InvalidConfig("the configuration cannot be read:\n" + "\n".join(f"  {problem}" for problem in problems))


def parse(text: str, where: str) -> Any:
    """The value of a configuration file's text; InvalidConfig as of check_files. For those who have no file."""
    problems = list(_problems(text, where))
    if problems:
        raise InvalidConfig("\n".join(problems))
    return yaml.safe_load(text)


def _problems_of(path: Path) -> Iterator[str]:
    try:
        if not path.is_file():
            raise OSError("not a file")
        if path.stat().st_size > MOST_BYTES:
            raise OSError(f"larger than {MOST_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        yield f"{path}: cannot be read: {error.strerror or error if isinstance(error, OSError) else 'not UTF-8'}"
        return
    yield from _problems(text, str(path))


def _problems(text: str, where: str) -> Iterator[str]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        yield f"{where}{line}: not valid YAML: {error.problem or error.context}"
    except yaml.YAMLError as error:
        yield f"{where}: not valid YAML: {str(error).splitlines()[0]}"
    except RecursionError:
        yield f"{where}: nested more than {DEEPEST} deep"
    else:
        if isinstance(root, yaml.MappingNode):
            yield from (f"{where}, {problem}" for problem in _Look().at(root))
        elif root is not None:  # an empty file changes nothing
            yield f"{where}: must hold keys and values, as config.yaml does"


@dataclass
class _Look:
    """One look at all nodes of a file. `sizes`: how many values a finished node stands for; `open`: those begun."""

    sizes: dict[yaml.Node, int] = field(default_factory=dict)
    open: list[yaml.Node] = field(default_factory=list)

    def at(self, node: yaml.Node, path: tuple[str, ...] = ()) -> Iterator[str]:
        """The problems of a node and of all within; each node is looked at once, however many aliases it has."""
        if node in self.open or len(path) > DEEPEST:
            yield _said(node, path, "refers to itself" if node in self.open else f"nested more than {DEEPEST} deep")
        elif node not in self.sizes:
            self.open.append(node)
            kind = _kind(node)
            if kind not in KINDS:
                yield _said(node, path, f"a {kind} in YAML; accepted: {ACCEPTED} (quote what is meant as text)")
            if isinstance(node, yaml.ScalarNode):
                yield from _scalar_problems(node, kind, path)
            children: list[tuple[str, yaml.Node]] = []
            if isinstance(node, yaml.MappingNode):
                yield from _key_problems(node, path)
                children = [(str(key.value)[:100], value) for key, value in node.value]
            elif isinstance(node, yaml.SequenceNode):
                children = [(str(index), value) for index, value in enumerate(node.value)]
            for name, child in children:
                yield from self.at(child, (*path, name))
            self.sizes[node] = 1 + sum(self.sizes.get(child, 0) for _, child in children)
            self.open.pop()
            if not path and self.sizes[node] > MOST_VALUES:
                yield _said(node, path, f"more than {MOST_VALUES} values, with its aliases written out")


def _scalar_problems(node: yaml.ScalarNode, kind: str, path: tuple[str, ...]) -> Iterator[str]:
    text = node.value[:40]
    if kind == "int" and not PLAIN_INTEGER.fullmatch(node.value):
        yield _said(node, path, f"{text} is an unusual whole number in YAML; write at most 30 decimal digits")
    if kind == "float" and ":" in node.value:
        yield _said(node, path, f"{text} is a number to the base 60 in YAML; write a decimal number")
    if kind == "str" and node.style is None and EXPONENT.fullmatch(node.value):
        yield _said(node, path, f"{text} is text in YAML; write the number as in 1.0e-3 or 0.001")


def _key_problems(node: yaml.MappingNode, path: tuple[str, ...]) -> Iterator[str]:
    seen = dict[str, yaml.Node]()
    for key, _ in node.value:
        where = (*path, str(key.value)[:100])
        if _kind(key) == "merge":
            continue
        if _kind(key) != "str":
            yield _said(key, where, f"this key is no text but a {_kind(key)} in YAML; quote it")
        elif not path and key.value in SNAKEMAKES:
            yield _said(key, where, "unknown key; Snakemake has a use for it, and this workflow has none")
        elif key.value in seen:
            first = seen[key.value].start_mark.line + 1
            yield _said(key, where, f"the key is there twice, first on line {first}; only one of them would count")
        seen.setdefault(str(key.value), key)


def _kind(node: yaml.Node) -> str:
    """'int', 'timestamp' ... of YAML's own types, else the tag as it was written."""
    return str(node.tag).removeprefix("tag:yaml.org,2002:")[:100]


def _said(node: yaml.Node, path: tuple[str, ...], problem: str) -> str:
    key = f" {'.'.join(path)}:" if path else ""
    return f"line {node.start_mark.line + 1}:{key} {problem}"
