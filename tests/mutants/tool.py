"""Mutants made by a tool: cosmic-ray's operators, each applied at one place of one module.

Only its operators are used, not its command line, which runs one test command for all modules: here each mutant gets
the tests of its own room first, in a copy of the project. mutmut does not know packages in workflow/src.
"""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from entries import HERE, PACKAGE, ROOT, Mutant, load
from scalecard.jobs.inputs import SOURCES, closure, experiment_names

MODULES = (
    "parallel/*.py",
    "workloads/*.py",
    "measuring/*.py",
    "analysis/limits.py",
    "analysis/limits.py",
    "records/statistics.py",
)
# Of the 11 ways to replace one operator by another, those that leave a program which might be believed.
OPERATORS = re.compile(
    r"core/(AddNot|NumberReplacer|ZeroIterationForLoop|Replace(True|False|And|Or|Break|Continue)With\w+"
    r"|ReplaceUnaryOperator_Delete_\w+|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Div|Mod_Mul"
    r"|Pow_Mul)|ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_Gt|Gt_Lt|LtE_GtE|GtE_LtE|Eq_NotEq|NotEq_Eq"
    r"|Is_IsNot|IsNot_Is|In_NotIn|NotIn_In))"
)
# What makes no difference wherever it is: `strict=` and `frozen=` check only what never happens, a billion is one more
# or less, and the star of a signature, which is no product, only says how a function may be called.
NO_DIFFERENCE = re.compile(
    r"(^|[( ])/,|\b(strict|frozen)=False\b|\b(999999999|1000000001|99999999999\d|100000000000\d)\."
)


@dataclass(frozen=True)
class Equivalent:
    """A change of one line that no user could notice, and why."""

    file: str
    old: str
    new: str
    why: str


def equivalents() -> list[Equivalent]:
    """What equivalent.yaml names."""
    found = yaml.safe_load((HERE / "equivalent.yaml").read_text()) or []
    return [Equivalent(entry["file"], entry["from"], entry["to"], entry["why"]) for entry in found]


def mutants() -> list[Mutant]:
    """Every mutant of every module, without those that equivalent.yaml names.

    The proofs that may catch one are those of the experiments that import its module.
    """
    experiments = _importing()
    named = {(each.file, each.old, each.new) for each in equivalents()}
    paths = [path for pattern in MODULES for path in sorted((ROOT / PACKAGE).glob(pattern))]
    found: dict[str, Mutant] = {}
    for path in paths:
        file = str(path.relative_to(ROOT / PACKAGE))
        for code in _mutations(path.read_text()):
            old, new = changed_line(path.read_text(), code)
            if (file, old, new) not in named and not NO_DIFFERENCE.search(new):
                wrong, room = f"{old}  ->  {new}", file.split("/")[0]
                found[code] = Mutant(
                    wrong=wrong,
                    file=file,
                    code=code,
                    experiments=experiments.get(file, ()),
                    tests=room,
                    tests_first=True,
                )
    return list(found.values())


def _importing() -> dict[str, tuple[str, ...]]:
    """The experiments by module; first those in which an entry is planted, because its proof is about the module."""
    planted = {(entry.file, entry.experiment) for entry in load()}
    found = defaultdict[str, list[str]](list)
    for name in experiment_names():
        for path in closure(f"experiments.{name}"):
            found[str(path.relative_to(SOURCES))].append(name)
    return {file: tuple(sorted(own, key=lambda name: (file, name) not in planted)) for file, own in found.items()}


def _mutations(text: str) -> Iterator[str]:
    """The mutated texts of a module."""
    from cosmic_ray import plugins
    from cosmic_ray.mutating import mutate_code

    for name in filter(OPERATORS.fullmatch, plugins.operator_names()):
        operator, occurrence = plugins.get_operator(name)(), 0
        while (code := mutate_code(text, operator, occurrence)) is not None:
            occurrence += 1
            yield code


def changed_line(before: str, after: str) -> tuple[str, str]:
    """The first line that differs, without its indentation, before and after."""
    changes = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
    old = next((line[1:].strip() for line in changes if line.startswith("-")), "")
    return old, next((line[1:].strip() for line in changes if line.startswith("+")), "")


def as_equivalent(mutant: Mutant) -> str:
    """A survivor as an entry of equivalent.yaml, for whoever finds that it is one."""
    old, new = mutant.wrong.split("  ->  ")
    return yaml.safe_dump(
        [{"file": mutant.file, "from": old, "to": new, "why": "?"}], sort_keys=False, width=1000, allow_unicode=True
    )


def sources(folder: Path = ROOT / PACKAGE) -> set[str]:
    """The modules that are mutated, as paths in the package."""
    return {str(path.relative_to(folder)) for pattern in MODULES for path in folder.glob(pattern)}
