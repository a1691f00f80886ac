"""How large the package is: `python tests/test_size.py` prints it. No file or function is too long."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "workflow" / "src" / "scalecard"
LONGEST_FILE, SHORT_FILE, LONGEST_FUNCTION = 400, 60, 40  # lines

# Shorter files, and why they stand alone; an `__init__.py` needs no reason.
SHORT = {
    "__main__.py": "Python's name for it",
    "distributed/rank_server.py": "imported by the fork server, and by the ranks in it",
    "exports/write_exports.py": "the list of all formats",
    "hardware/facts.py": "all vendors and the host record facts with it, and the workflow finds its folder",
    "measuring/tracing.py": "a file of the profiler, which no timing takes",
    "report/night_folders.py": "the workflow asks it at every start, and imports no more",
    "report/pages.py": "how every page is made of a template: reports, comparisons and galleries",
    "report/textbook.py": "what the page has of docs/",
    "time_spent.py": "all rooms may count what they spend, and it imports none",
    "workloads/builtin/resnet50.py": "one workload a file",
    "workloads/builtin/toy.py": "one workload a file",
    "workloads/stage_cuts.py": "a setting and cut_model.py both take it",
}


def files() -> dict[str, int]:
    """The lines of every module."""
    every = {str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: text.count("\n") for name, text in every.items()}


def short() -> list[str]:
    """The files that are shorter than most."""
    return [name for name, lines in files().items() if lines < SHORT_FILE and not name.endswith("__init__.py")]


def functions() -> Iterator[tuple[str, int]]:
    """Every function and its lines."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield f"{path.relative_to(PACKAGE)}: {node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_no_file_is_too_long() -> None:
    assert {name: lines for name, lines in files().items() if lines > LONGEST_FILE} == {}


def test_a_short_file_has_a_reason() -> None:
    assert set(short()) == set(SHORT)


def test_no_function_is_too_long() -> None:
    assert [(name, lines) for name, lines in functions() if lines > LONGEST_FUNCTION] == []


if __name__ == "__main__":
    lengths, found = files(), [lines for _, lines in functions()]
    print(f"{len(lengths)} files, {sum(lengths.values())} lines, {len(short())} files below {SHORT_FILE} lines")
    print(f"{len(found)} functions, {statistics.median(found):g} lines at the median, {max(found)} at most")
