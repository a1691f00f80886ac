"""The planted wrong answers: read from planted/*.yaml, checked, and a tenth of them chosen by the commit's hash."""

import ast
import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = Path("workflow/src/scalecard")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One module with something wrong in it.

    `code` is the whole mutated module. `tests` is the room whose tests run first. The proof, which takes longer, runs
    before the tests, so that it is seen what it catches, or with `tests_first` after them.
    """

    wrong: str
    file: str
    code: str
    experiments: tuple[str, ...]
    tests: str
    tests_first: bool = False


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of planted/*.yaml.

    `experiment` is the one whose proof may catch it, or None. `tests` is the room whose tests should, if it is not the
    file's own. `survives` says why nothing catches it yet; it counts against the goal all the same.
    """

    wrong: str
    file: str
    old: str
    new: str
    experiment: str | None
    tests: str = ""
    survives: str = ""

    def mutant(self, root: Path = ROOT) -> Mutant:
        """ValueError unless the entry still applies, at one place, and gives another program that compiles."""
        text = (root / PACKAGE / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: occurs {text.count(self.old)} times, not once:\n{self.old}")
        code = text.replace(self.old, self.new)
        if ast.dump(ast.parse(code)) == ast.dump(ast.parse(text)):
            raise ValueError(f"{self.file}: the same program as before: {self.wrong}")
        tests = self.tests or self.file.rpartition("/")[0]
        experiments = (self.experiment,) if self.experiment else ()
        return Mutant(wrong=self.wrong, file=self.file, code=code, experiments=experiments, tests=tests)


def load(folder: Path = HERE / "planted") -> list[Entry]:
    """All entries, in the order of the files; ValueError names one with missing or unknown keys."""
    return [_entry(path, found) for path in sorted(folder.glob("*.yaml")) for found in yaml.safe_load(path.read_text())]


def _entry(path: Path, found: dict[str, Any]) -> Entry:
    renamed = {{"from": "old", "to": "new"}.get(key, key): value for key, value in found.items()}
    unknown = set(renamed) - {field.name for field in fields(Entry)}
    missing = {"wrong", "file", "old", "new", "experiment"} - set(renamed)
    if unknown or missing:
        raise ValueError(f"{path.name}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}: {found}")
    return Entry(**renamed)


def commit() -> str:
    """The hash of the commit; all zeros outside a repository."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "0" * 40


def shuffled(entries: Iterable[Any], seed: str) -> list[Any]:
    """In an order that depends on the seed and the entries alone."""
    return sorted(entries, key=lambda entry: hashlib.sha256(f"{seed} {entry.file} {entry.wrong}".encode()).digest())


def tenth(entries: Sequence[Entry], seed: str) -> list[Entry]:
    """A tenth, rounded up: another one for each commit, so that after many commits all have been run."""
    return shuffled(entries, seed)[: -(-len(entries) // 10)]
