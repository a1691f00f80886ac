"""How large the package is: `python tests/test_size.py` prints it, and no file or function is too long."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "workflow" / "src" / "scalecard"
LONGEST_FILE, SHORT_FILE, LONGEST_FUNCTION = 400, 60, 40  # lines


def files() -> dict[str, int]:
    """The lines of every module."""
    every = {str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: text.count("\n") for name, text in every.items()}


def functions() -> Iterator[tuple[str, int]]:
    """Every function and its lines."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield f"{path.relative_to(PACKAGE)}: {node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_no_file_is_too_long() -> None:
    assert {name: lines for name, lines in files().items() if lines > LONGEST_FILE} == {}


def test_no_function_is_too_long() -> None:
    assert [(name, lines) for name, lines in functions() if lines > LONGEST_FUNCTION] == []


if __name__ == "__main__":
    lengths, found = files(), [lines for _, lines in functions()]
    short = [name for name, lines in lengths.items() if lines < SHORT_FILE and not name.endswith("__init__.py")]
    print(f"{len(lengths)} files, {sum(lengths.values())} lines, {len(short)} files below {SHORT_FILE} lines")
    print(f"{len(found)} functions, {statistics.median(found):g} lines at the median, {max(found)} at most")
