"""Facts about source code that is read and never imported."""

from pathlib import Path

import pytest
from scalecard import experiments
from scalecard.jobs import inputs
from scalecard.jobs.inputs import closure, spec_fields, title
from scalecard.report import sections
from support.projects import ROOT


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of that name, whose modules are written by the test."""
    folder = tmp_path / "scalecard"
    folder.mkdir()
    monkeypatch.setattr(inputs, "SOURCES", folder)
    return folder


def write(package: Path, **modules: str) -> None:
    """Write modules; in their names a double underscore stands for a folder's slash."""
    for name, text in modules.items():
        path = package / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)


def names(package: Path, *modules: str) -> set[str]:
    """The closure without `__init__.py` files."""
    return {str(path.relative_to(package)) for path in closure(*modules) if path.name != "__init__.py"}


def test_imports_are_followed_and_cycles_end(package: Path) -> None:
    write(package, run="from scalecard import a", a="import scalecard.b", b="from scalecard.run import x", c="")
    assert names(package, "run") == {"run.py", "a.py", "b.py"}
    assert names(package, "c", "b") == {"run.py", "a.py", "b.py", "c.py"}


def test_the_packages_around_a_module_belong_to_it(package: Path) -> None:
    write(package, run="from scalecard.room.inner import x", room__inner="x = 1", room__other="")
    assert closure("run") == {package / path for path in ("__init__.py", "run.py", "room/__init__.py", "room/inner.py")}


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    from scalecard import a",
        "class C:\n    def f(self):\n        import scalecard.a",
        "try:\n    pass\nexcept OSError:\n    from scalecard import a\nfinally:\n    pass",
        "if x:\n    pass\nelse:\n    with y:\n        from scalecard import a",
        "match x:\n    case 1:\n        from scalecard import a",
        "def f(): from scalecard import a",
        '"""\ndef f\n"""\nfrom scalecard import a\ndef g(): pass',
        "from scalecard.a import (\n    one,\n    two as three,\n)",
    ],
)
def test_an_import_counts_wherever_it_stands(package: Path, code: str) -> None:
    write(package, run=code, a="")
    assert names(package, "run") == {"run.py", "a.py"}


def test_words_and_other_packages_do_not_count(package: Path) -> None:
    write(package, run='"""Like\nfrom scalecard import a\n"""\nimport torch, scalecardx.a\nfrom os import path', a="")
    assert names(package, "run") == {"run.py"}


def test_a_title_is_the_first_line_of_a_docstring(package: Path) -> None:
    write(package, report__one='"""How fast?\n\nMore."""', report__none="x = 1")
    assert title("report.one") == "How fast?"
    assert title("report.none") == "report.none"


@pytest.mark.parametrize("name", experiments.names())
def test_what_is_read_is_what_would_be_imported(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(ROOT)
    spec, section = experiments.load(name).Spec, sections.load(name)
    assert section.__doc__
    assert title(f"report.sections.{name}") == section.__doc__.splitlines()[0]
    assert spec_fields(name) == list(spec.__annotations__), "the common ones are inherited"


def test_an_experiment_that_does_not_exist_has_no_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert spec_fields("al_reduce") == []
