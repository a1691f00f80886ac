"""docs/textbook.md: all items of the texts have their place, the places exist, and the printed examples are run."""

import ast
import doctest
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from scalecard.jobs.inputs import closure
from scalecard.records.axes import Axes
from scalecard.report import sections, textbook, toc
from scalecard.workloads import builtin
from support.blocks import CONFIG
from support.projects import ROOT

DOCS, PACKAGE = ROOT / "docs", ROOT / "workflow/src/scalecard"
PAGE = (DOCS / "textbook.md").read_text("utf-8")
WORDS = {
    *("All-reduce", "Data parallelism", "Distributed", "Model parallelism", "Pipeline parallelism", "Scatter, gather"),
    *("Strong scaling", "Tensor parallelism", "Weak scaling"),
}
MOST_BYTES = 2000  # of a picture, which every report has


class Row(NamedTuple):
    number: int
    here: str
    sections: list[str]


def rows() -> Iterator[Row]:
    for line in PAGE.splitlines():
        if re.match(r"\| \d", line):
            number, _, here, where = (cell.strip() for cell in line.strip("|").split(" | "))
            yield Row(int(number), here, re.findall(r"`([^`]+)`", where))


def test_every_item_of_the_texts_is_there_once() -> None:
    assert sorted(row.number for row in rows()) == list(range(1, 100))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def is_defined(place: str) -> bool:
    """'a/b.py::Class.method', a function, a class or a constant."""
    name, _, within = place.partition("::")
    if not (PACKAGE / name).is_file():
        return False
    here: Any = tree(PACKAGE / name)
    for part in within.split("."):
        named = {getattr(node, "name", None): node for node in here.body}
        named |= {t.id: node for node in here.body for t in targets(node) if isinstance(t, ast.Name)}
        if part not in named:
            return False
        here = named[part]
    return True


def targets(node: ast.stmt) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []


def texts(*paths: Path) -> set[str]:
    """All strings in the code of these files."""
    every = (node for path in paths for node in ast.walk(tree(path)) if isinstance(node, ast.Constant))
    return {node.value for node in every if isinstance(node.value, str)}


def titles(path: Path) -> set[str]:
    """What a section gives its panels as title: the values of `title=`, of functions of that name, and of mappings."""
    found = list[ast.expr]()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            found += [word.value for word in node.keywords if word.arg == "title"]
            found += node.args if getattr(node.func, "attr", "") in ("set_title", "title") else []
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):  # panels by their titles
            found.append(node.targets[0].slice)
    parts = [part.value for one in found for part in ast.walk(one) if isinstance(part, ast.Constant)]
    return {part.strip(": ") for part in parts if isinstance(part, str)}  # of some, a model's name comes first


def values(block: dict[str, Any]) -> set[Any]:
    """All single values of an experiment's block in config.yaml, at the full scale."""
    return {v for value in block.values() for v in (value if isinstance(value, list) else [value]) if v.__hash__}


def is_case(axis: str, value: Any, experiment: str) -> bool:
    """An axis, with a value that config.yaml or the experiment's code has."""
    if axis not in Axes.__annotations__:
        return False
    if axis == "devices" or isinstance(value, bool):
        return True
    if isinstance(value, str):
        return value in texts(*(ROOT / path for path in closure(f"experiments.{experiment}")))
    return value in values(CONFIG["experiments"][experiment])


def is_known(code: str, experiment: str) -> bool:
    """A place in the package, a case, an axis, an experiment, a key of config.yaml, or a metric."""
    if "::" in code:
        return is_defined(code)
    if pairs := re.findall(r'(\w+)=("[^"]+"|\S+)', code):
        return all(is_case(axis, yaml.safe_load(value), experiment) for axis, value in pairs)
    if ": {" in code:
        ((workload, settings),) = yaml.safe_load(code).items()
        return workload in builtin.NAMES and set(settings) <= {"batch_size"}
    known = {*sections.names(), *Axes.__annotations__, *CONFIG["experiments"][experiment]}
    return code in known or (code.endswith("_time") and code in texts(PACKAGE / f"experiments/{experiment}.py"))


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: str(row.number))
def test_what_a_row_names_exists(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert row.sections
    assert set(row.sections) <= set(sections.names())
    unknown = [code for code in re.findall(r"`([^`]+)`", row.here) if not is_known(code, row.sections[0])]
    assert not unknown
    drawn = {title for name in row.sections for title in titles(PACKAGE / f"report/sections/{name}.py")}
    assert [title for title in re.findall(r'[Ff]igure "([^"]+)"', row.here) if title not in drawn] == []
    assert set(re.findall(r'answer "([^"]+)"', row.here)) <= set(toc.NAMES.values())


@pytest.mark.parametrize(
    ("code", "experiment"),
    [
        ("parallel/data_parallel.py::gather", "dp_scratch"),
        ("parallel/data_parallel.py::ScratchDataParallel.train", "dp_scratch"),
        ("parallel/no_such_file.py::step", "dp_scratch"),
        ("devises=2", "dp_scratch"),
        ("devices=2 lr=0.3", "dp_scratch"),
        ("step=copying", "copy_cost"),
        ("resnet19: {batch_size: 256}", "strategies"),
        ("matmul", "allreduce"),
    ],
)
def test_what_does_not_exist_is_found(code: str, experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert not is_known(code, experiment)


@pytest.mark.parametrize("name", ["textbook.md", "glossary.md"])
def test_links_lead_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", (DOCS / name).read_text("utf-8")):
        file, _, anchor = link.partition("#")
        if not link.startswith("https://"):
            assert (DOCS / file).is_file(), link
            heads = re.findall(r"^#+ (.+)$", (DOCS / file).read_text("utf-8"), re.MULTILINE)
            assert not anchor or anchor in [head.lower().replace(" ", "-") for head in heads], link


def test_the_printed_examples_are_what_the_code_prints() -> None:
    done = doctest.testfile(str(DOCS / "textbook.md"), module_relative=False)
    assert (done.failed, done.attempted > 15) == (0, True)


def test_every_section_with_chapters_has_its_items_and_no_others() -> None:
    chapters = yaml.safe_load((ROOT / "workflow/reference/chapters.yaml").read_text())["experiments"]
    for name in sections.names():
        shown = textbook.items(name)
        assert len(shown) == sum(name in row.sections for row in rows())
        assert shown or name not in chapters, name
    assert ("`try_all_gpus`", "`hardware/devices.py::open_devices`") in textbook.items("dp_scratch")
    (large,) = (
        item.here
        for item in textbook.items("strategies")
        if "too large for one GPU" in item.text and "None" in item.here
    )
    assert "Llama 3.1 8B;" in large, "a link is shown as its text"


def test_the_words_that_sections_explain_are_in_the_glossary() -> None:
    assert set(textbook.glossary()) > WORDS
    for word in WORDS:
        assert re.match(r"[A-Z].+\. .+\.$", textbook.glossary()[word]), "two sentences"
    assert textbook.glossary()["All-reduce"].startswith("Every device begins with a tensor of its own and ends with")


def test_pictures_are_small_and_follow_the_page() -> None:
    for pictures in textbook.PICTURES.values():
        for name in pictures:
            text = (ROOT / "workflow/report" / name).read_text("utf-8")
            assert len(text.encode()) < MOST_BYTES
            assert f"(../workflow/report/{name})" in PAGE
            assert 'fill="currentColor"' in text
            assert "prefers-color-scheme:dark" in text
            assert " id=" not in text, "several are in one page"
