"""No code of the report reads back what the program has put into words: a fact stays a value until the last step.

Every module of analysis/, figures/, report/, exports/ and cli/ is searched for operations that look for a part of a
string, on what holds words by its name. What others wrote has other names (an SVG, a path, a line of git), and what was
made to be read back has a parser of its own (pathlib, urllib). A substitution by a pattern makes words, and is allowed.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import scalecard

# Names of fields, variables and axes of a case that hold words of ours.
WORDS = {
    *("name", "label", "title", "headline", "text", "sentence", "words", "said", "told", "gist", "about", "subject"),
    *("what", "note", "reason", "message", "error", "failure", "detail", "remark", "warning", "advice", "nickname"),
    *("verdict", "kind", "change", "normal", "span", "expectation", "look", "symbol"),
    *("on", "direction", "strategy", "option", "rung", "implementation", "partition", "algorithm", "schedule", "cut"),
    *("place", "pairing", "part", "step", "mode", "call", "counter", "scaling", "unit", "workload", "model"),
}
WRITERS = {
    "sentences",
    "health",
    "formatting",
    "ratio_text",
}  # modules whose functions return words
SEARCHES = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "rsplit"),
    *("splitlines", "find", "rfind", "index", "rindex", "count", "replace", "isdigit", "isdecimal", "isnumeric"),
}
STRIPS = {"strip", "lstrip", "rstrip"}  # of what they are told
PATTERNS = {"match", "fullmatch", "search", "findall", "finditer", "split"}
PACKAGE = Path(scalecard.__file__).parent
ROOMS = ("cli", "exports", "report", "figures", "analysis")
SOURCES = [PACKAGE / "__main__.py", *(path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py")))]


def read_back(source: str) -> list[int]:
    """The lines on which words are searched."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    return sorted({line for scope in [tree, *functions] for line in _lines(scope, _aliases(scope))})


def _lines(scope: ast.AST, aliases: set[str]) -> Iterator[int]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if any(_holds_words(each, aliases) for each in _searched(node, node.func)):
                yield node.lineno
        elif isinstance(node, ast.Compare):
            sides = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
            if any(_is_text(part) and _holds_words(whole, aliases) for part, op, whole in sides if _is_search(op)):
                yield node.lineno


def _searched(call: ast.Call, func: ast.Attribute) -> list[ast.expr]:
    """What a call looks into: the object of a string's method, or the arguments of a pattern's."""
    if func.attr in SEARCHES or (func.attr in STRIPS and call.args):
        return [func.value, *(call.args if func.attr in PATTERNS else [])]
    return call.args if func.attr in PATTERNS else []


def _is_search(op: ast.cmpop) -> bool:
    return isinstance(op, ast.In | ast.NotIn)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _holds_words(node: ast.expr, aliases: set[str]) -> bool:
    """Whether this is a field, an axis, a variable or a call of such a name, or what one of the writers returns."""
    match node:
        case ast.Name(id=name):
            return name in WORDS or name in aliases
        case ast.Attribute(attr=name):
            return name in WORDS
        case ast.Subscript(slice=ast.Constant(value=str(axis))):
            return axis in WORDS
        case ast.Subscript(value=inner) | ast.NamedExpr(value=inner):
            return _holds_words(inner, aliases)
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            return _holds_words(inner, aliases)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module))) if module in WRITERS:
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in WORDS - SEARCHES:
            return True
        case ast.Call(func=ast.Attribute(attr="get" | "text"), args=[ast.Constant(value=str(axis)), *_]):
            return axis in WORDS
        case ast.Call(func=ast.Attribute(value=inner, attr="lower" | "upper" | "casefold" | "strip")):
            return _holds_words(inner, aliases)
        case ast.BoolOp(values=several):
            return any(_holds_words(each, aliases) for each in several)
        case ast.IfExp(body=one, orelse=other):
            return _holds_words(one, aliases) or _holds_words(other, aliases)
    return False


def _aliases(scope: ast.AST) -> set[str]:
    """Variables of a function to which words, or the parts of several, are assigned, also by way of one another."""
    pairs = [pair for node in ast.walk(scope) for pair in _assigned(node)] if not isinstance(scope, ast.Module) else []
    found: set[str] = set()
    while more := {name for name, value in pairs if _holds_words(value, found)} - found:
        found |= more
    return found


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            yield from ((t.id, v) for t, v in zip(targets, values, strict=False) if isinstance(t, ast.Name))
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
            yield from ((name.id, value) for each in targets for name in ast.walk(each) if isinstance(name, ast.Name))
        case ast.For(target=ast.Name(id=name), iter=value) | ast.comprehension(target=ast.Name(id=name), iter=value):
            yield name, value
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            | ast.NamedExpr(target=ast.Name(id=name), value=value)
        ):
            yield name, value


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_reads_words_back(path: Path) -> None:
    source = path.read_text("utf-8")
    lines = [f"{path.name}:{line}: {source.splitlines()[line - 1].strip()}" for line in read_back(source)]
    assert not lines, "\n".join(["keep the fact beside the words, and ask it", *lines])


@pytest.mark.parametrize(
    "planted",
    [
        'rate.what.startswith("all-reduce on")',
        'verdict.what.partition(", ")[2]',
        "change.split()[0] in SOFTWARE",
        'str(record.case["on"]).split(" + ")',
        'record.text("strategy").split()[0] == "DDP"',
        '"alone" not in str(record.case.get("strategy"))',
        'f"{word} in" in group.told',
        'note.lower().startswith("out of memory")',
        'note[2:].removeprefix(f"{reason}: ")',
        'log(label.rstrip("0123456789"))',
        "sum(1 for word in direction.split() if word.isdigit())",
        're.search("GPU (\\\\d+)", rate.what)',
        "GPU.fullmatch(label)",
        "formatting.seconds(value).split()[1]",
        'on(place.devices, place.nodes).replace(" devices", "")',
        '(first.headline or other).replace("x", "")',
    ],
)
def test_a_search_in_words_is_found(planted: str) -> None:
    assert read_back(f"def plant():\n    return {planted}\n") == [2]


@pytest.mark.parametrize(
    "planted",
    [
        "gain = ratio_text.speedup(new, old)\n    return gain.split()[0]",
        'a, b = rate.what, 1\n    return a.endswith(", alone")',
        'first = alert.told\n    again = first\n    return again.partition(":")',
        "first, *others = verdict.place\n    return [other.removeprefix(first) for other in others]",
        'return [end for end in place if end.startswith("node ")]',
        'if found := record.note:\n        return found.removeprefix("blocks ")',
    ],
)
def test_a_search_in_a_variable_with_words_is_found(planted: str) -> None:
    assert len(read_back(f"def plant():\n    {planted}\n")) == 1


@pytest.mark.parametrize(
    "honest",
    [
        "git(...).splitlines()",
        'Path(listed).suffix.startswith(".")',
        'svg.replace("<metadata>", "")',
        'result.find("time", strategy=record.case["strategy"])',
        '"rank" in record.case',
        "label.strip()",
        'spaced(key).replace("_", " ")',
        "text[:12]",
        "kinds.index(kind)",
        'PATTERN.sub(r"\\\\1", text)',
        "one.verdict == other.verdict",
        "row.verdict in CHANGED",
    ],
)
def test_other_work_on_strings_is_allowed(honest: str) -> None:
    assert read_back(f"def honest():\n    return {honest}\n") == []
