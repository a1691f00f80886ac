"""The lines of code for GPUs that no pretended box and no fast test executes: `make pretended ARGS=--coverage`.

A function is for GPUs if its text names them (WORDS), or if a pretended box enters it and the smoke card on CPUs does
not. Its lines for GPUs are the statements that the smoke card on CPUs does not execute. unexecuted.yaml says of each
function with such a line that nothing executes why that is so. Takes long: most of its runs are a whole card.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import boxes
import coverage
import yaml
from support.projects import ROOT

HERE = Path(__file__).parent
PACKAGE = Path("workflow/src/scalecard")
# What never runs on a GPU: these rooms need no torch.
LEFT_OUT = ("cli", "jobs", "exports", "report", "figures", "analysis")
WORDS = re.compile("cuda|gpu|nvml|nvlink|nccl|pinned|peer", re.IGNORECASE)
MOST = 0.02  # of the lines for GPUs
AT_ONCE = 2  # boxes; each measures as if it had the machine to itself, and nobody reads its times
ON_CPUS = (("--devices", "0", "--short"),)
PRETENDED: tuple[tuple[str, ...], ...] = (  # the longest first
    ("--devices", "8", "--short"),
    ("--card", "a100-pairs", "--short"),
    ("--short",),
    *(("--card", card, "--short") for card in ("rtx4090", "h200", "t4")),
    ("--memory", "268435456", "--short", "--only", "strategies", "tuning"),
    ("--nodes", "2", "--devices", "1"),
    *(("--card", card) for card in ("mig", "lost", "driver-570")),
    *(("--card", card, "--short", "--only", "health") for card in ("faulty", "wrong")),
)

Lines = Mapping[Path, frozenset[int]]  # of each module


@dataclass(frozen=True)
class Function:
    """A function of a module, and its statements that are for GPUs."""

    module: Path
    name: str
    lines: frozenset[int]


def main(folder: Path) -> int:
    """Run everything into that folder, print what was not executed, and return the exit status."""
    environment = {"COVERAGE_PROCESS_START": str(HERE / "coveragerc")}
    status = 0
    boxes.libraries()  # built once, before two runs would
    runs = [("cpus", arguments) for arguments in ON_CPUS] + [("pretended", arguments) for arguments in PRETENDED]

    def run(box: tuple[str, tuple[str, ...]]) -> int:
        name, arguments = box
        print(name, *arguments, flush=True)
        return _recorded(folder / name, [sys.executable, str(HERE / "run.py"), *arguments], environment)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        status |= max(pool.map(run, runs))
    print("fast tests", flush=True)
    tests = ["-m", "not (workflow or cluster or container or browser or pretended)", "--numprocesses", "2"]
    status |= _recorded(folder / "tests", [sys.executable, "-m", "pytest", *tests], environment)
    return max(status, report(*(executed(folder / name) for name in ("cpus", "pretended", "tests"))))


def _recorded(folder: Path, command: list[str], environment: Mapping[str, str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    recording = {**environment, "COVERAGE_FILE": str(folder / "data")}
    return int(subprocess.run(command, cwd=ROOT, env=os.environ | recording).returncode != 0)


def modules() -> list[Path]:
    """Those that may run where GPUs are, relative to the project."""
    found = sorted((ROOT / PACKAGE).rglob("*.py"))
    return [path.relative_to(ROOT) for path in found if path.relative_to(ROOT / PACKAGE).parts[0] not in LEFT_OUT]


def executed(folder: Path) -> Lines:
    """The statements of each module that the processes executed whose data are in that folder."""
    found = coverage.Coverage(data_file=str(folder / "combined"), config_file=str(HERE / "coveragerc"))
    found.combine([str(path) for path in folder.glob("data.*")], keep=True)
    lines = {}
    for module in modules():
        _, statements, _, missing, _ = found.analysis2(str(module))
        lines[module] = frozenset(statements) - frozenset(missing)
    return lines


def functions_for_gpus(cpus: Lines, pretended: Lines) -> Iterator[Function]:
    """Of each function that is for GPUs, its statements that the smoke card on CPUs does not execute."""
    analysis = coverage.Coverage(data_file=None, config_file=str(HERE / "coveragerc"))
    for module in modules():
        text = (ROOT / module).read_text()
        statements = frozenset(analysis.analysis2(str(module))[1])
        for name, own in _bodies(ast.parse(text)):
            body = statements & own
            named = any(WORDS.search(line) for number, line in enumerate(text.splitlines(), 1) if number in own)
            if named or (body & pretended[module] and not body & cpus[module]):
                yield Function(module, name, body - cpus[module])


def _bodies(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, frozenset[int]]]:
    """Each function's name and the lines of its body, without those of functions inside of it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = list(_bodies(node, f"{prefix}{node.name}."))
            yield from inner
            if isinstance(node, ast.FunctionDef):
                nested = frozenset().union(*(lines for _, lines in inner))
                body = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
                yield f"{prefix}{node.name}", frozenset(body) - nested
        else:
            yield from _bodies(node, prefix)


def report(cpus: Lines, pretended: Lines, tests: Lines) -> int:
    """Print the lines that nothing executed; 1 if they are too many, or if one has no reason in unexecuted.yaml."""
    reasons = yaml.safe_load((HERE / "unexecuted.yaml").read_text()) or {}
    functions = list(functions_for_gpus(cpus, pretended))
    left = [
        Function(f.module, f.name, missing)
        for f in functions
        if (missing := f.lines - pretended[f.module] - tests[f.module])
    ]
    unexplained = 0
    for function in left:
        module = str(function.module.relative_to(PACKAGE))
        reason = reasons.get(module, {}).get(function.name)
        unexplained += reason is None
        numbers = ", ".join(map(str, sorted(function.lines)))
        print(f"{module}: {function.name}, lines {numbers}: {reason or 'NO REASON in unexecuted.yaml'}")
    every, missing = (sum(len(f.lines) for f in some) for some in (functions, left))
    by_boxes = sum(len(f.lines & pretended[f.module]) for f in functions)
    share = missing / max(every, 1)
    print(f"{every} lines for GPUs: {by_boxes} executed on pretended boxes, {missing} ({100 * share:.1f} %) by nothing")
    return int(share > MOST or unexplained > 0)
