"""The inputs of a rule are the files that its job loads, and computing them costs next to nothing."""

import gc
import importlib
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from scalecard import experiments
from scalecard.jobs import inputs
from scalecard.jobs.config import spans_nodes
from scalecard.records import files
from scalecard.records.record import Result
from support.builders import repeated
from support.nights import Nights
from support.projects import ROOT

IMAGES = {"ddp", "dp_concise", "dp_scratch", "tuning"}
COMPUTE = """
import ast, sys, time
from scalecard.jobs import inputs
from scalecard.jobs.inputs import SOURCES
start = time.process_time()  # other programs do not count
for name in sys.argv[1:]:
    inputs.of_experiment(name), inputs.of_figure(name), inputs.dataset_of(name, "auto")
inputs.of_report()
computed = time.process_time()
for path in SOURCES.rglob("*.py"):
    ast.parse(path.read_text())
print((computed - start) / (time.process_time() - computed))
"""


@pytest.fixture(autouse=True)
def project_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def loaded() -> Iterator[Callable[..., set[str]]]:
    """What a process that has loaded nothing of the package has loaded after work(*arguments).

    It is forked from this one, which has loaded torch and the like. No garbage is collected meanwhile: a child that
    freed what other tests' launches left here would crash.
    """
    for name in experiments.names():
        _import("run", f"experiments.{name}", f"report.sections.{name}")

    def after(work: Callable[..., object], *arguments: object) -> set[str]:
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as fresh:
            return relative(fresh.submit(_files_after, work, arguments).result())

    gc.disable()
    yield after
    gc.enable()


def _files_after(work: Callable[..., object], arguments: Iterable[object]) -> list[str]:
    """The package's files that are loaded by work(*arguments); what was loaded before is forgotten."""
    for name in _own_modules():
        del sys.modules[name]
    work(*arguments)
    return [str(sys.modules[name].__file__) for name in _own_modules()]


def _own_modules() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] == "scalecard"]


def _import(*modules: str) -> None:
    for module in modules:
        importlib.import_module(f"scalecard.{module}")


def _draw(name: str, result: Path, output: Path) -> None:
    importlib.import_module("scalecard.report.figure_files").draw(name, [result], [output])


def _export(result: Path, output: Path) -> None:
    importlib.import_module("scalecard.exports.write_exports").export([result], output)


@pytest.fixture
def strategies_result(make_result: Callable[..., Result], tmp_path: Path) -> Path:
    path = tmp_path / "results" / "box" / "strategies.json"
    case = {"workload": "gpt", "strategy": "single device", "devices": 1, "scaling": "strong"}
    record = replace(repeated(1.0, **case, batch_size=8, unit="samples", units=8), metric="step_time")
    files.save(make_result([record], experiment="strategies"), path)
    return path


def python(code: str, *arguments: str) -> str:
    """The last line that a fresh Python prints."""
    environment = os.environ | {"PYTHONPATH": "workflow/src"}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def relative(files: Iterable[str]) -> set[str]:
    """Relative to the project, without the files that no job depends on."""
    return {str(Path(file).relative_to(ROOT)) for file in files} - set(map(str, inputs.NO_INPUTS))


def sources(files: Iterable[str]) -> set[str]:
    return {file for file in files if file.endswith(".py")}


@pytest.mark.parametrize("name", experiments.names())
def test_an_experiment_depends_on_what_it_imports(loaded: Callable[..., set[str]], name: str) -> None:
    in_ranks = ["distributed.rank_server"] if inputs.imported_by_ranks(name) else []
    assert set(inputs.of_experiment(name)) == loaded(_import, "run", f"experiments.{name}", *in_ranks)


def test_the_exports_depend_on_what_writes_them(
    loaded: Callable[..., set[str]], strategies_result: Path, tmp_path: Path
) -> None:
    found = inputs.of_exports()
    assert sources(found) == loaded(_export, strategies_result, tmp_path / "exports")
    assert {"CITATION.cff", "Snakefile", "workflow/reference/gpu_specs.yaml"} < set(found)


@pytest.mark.parametrize("name", experiments.names())
def test_a_figure_depends_on_what_draws_it(loaded: Callable[..., set[str]], name: str) -> None:
    drawn_by = inputs.of_figure(name)
    assert sources(drawn_by) == loaded(_import, "report.figure_files", f"report.sections.{name}")
    assert {Path(file) for file in drawn_by if not file.endswith(".py")} == set(
        Path("workflow/reference").glob("*.yaml")
    )


def test_drawing_loads_nothing_else(
    loaded: Callable[..., set[str]], save_result: Callable[..., Path], tmp_path: Path
) -> None:
    result = save_result("box", repeated(1.0, mode="serial", devices=1), spec={"size": 16, "sizes": [16]})
    assert loaded(_draw, "async_timing", result, tmp_path / "a.svg") == sources(inputs.of_figure("async_timing"))
    assert (tmp_path / "a.svg").exists()


def _draw_trend(folder: Path, output: Path) -> None:
    from scalecard.report import figure_files, trend, trend_figure

    figure_files.save(trend_figure.plot(trend.of_platform(folder)), output)


def test_the_trend_depends_on_what_draws_it(
    loaded: Callable[..., set[str]], tmp_path: Path, make_result: Callable[..., Result]
) -> None:
    nights = Nights(tmp_path, make_result)
    nights.keep_all([1.0, 1.0])
    assert loaded(_draw_trend, nights.folder(), tmp_path / "trend.svg") == sources(inputs.of_trend())


def test_the_histories_of_a_platform_are_one_file_each(
    tmp_path: Path, make_result: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nights = Nights(tmp_path, make_result)
    nights.keep_all([1.0, 1.0], platform="old")
    nights.keep(1.0, platform="new", machine={"software": "f" * 12})
    shutil.copytree("results/new", "results/an odd;name")
    assert inputs.histories("old") == ["results/old/history/trend.json", "results/new/history/trend.json"]
    assert inputs.histories("elsewhere") == []


def test_the_report_depends_on_every_section_and_template(loaded: Callable[..., set[str]]) -> None:
    modules = [f"report.sections.{name}" for name in experiments.names()]
    modules += [f"report.answers.{name}" for name in inputs.answers()]
    written_by = set(inputs.of_report())
    assert sources(written_by) == loaded(_import, "report.render", *modules)
    templates = {str(path) for path in Path("workflow/report").iterdir() if path.suffix != ".rst"}
    reference = set(map(str, Path("workflow/reference").glob("*.yaml")))
    shown = {"docs/glossary.md", "docs/textbook.md"}
    assert written_by - sources(written_by) == templates | reference | shown


def test_all_inputs_of_all_rules_take_less_time_than_parsing_every_file_once() -> None:
    assert min(float(python(COMPUTE, *experiments.names())) for _ in range(3)) < 1


@pytest.mark.parametrize("name", experiments.names())
def test_experiments_that_train_on_images_need_the_dataset(name: str) -> None:
    assert inputs.dataset_of(name, "fashion-mnist") == ("fashion-mnist" if name in IMAGES else "none")


def test_the_experiments_on_ranks_are_known_before_anything_is_imported() -> None:
    """The server of their ranks begins early."""
    on_ranks = {"allreduce", "ddp", "health", "hybrid", "pipeline", "strategies", "tuning"}
    assert {name for name in experiments.names() if inputs.imported_by_ranks(name)} == on_ranks


def test_the_experiments_that_may_span_nodes() -> None:
    assert {name for name in experiments.names() if spans_nodes(name)} == {
        "allreduce",
        "ddp",
        "health",
        "hybrid",
        "strategies",
    }


def test_this_platforms_result_comes_first_and_others_if_they_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for platform in ("a", "m", "z"):
        Path("results", platform).mkdir(parents=True)
        Path("results", platform, "ddp.json").touch()
    assert inputs.result_files("ddp", "m") == [f"results/{platform}/ddp.json" for platform in ("m", "a", "z")]
    assert inputs.result_files("hybrid", "m") == ["results/m/hybrid.json"]


ODD_FOLDERS = ["a;touch PWNED;b", "$(touch PWNED)", "-x", ".hidden", "{name}", "a b", "\x1b[31m", "x" * 200]


def test_folders_that_are_not_named_like_a_platform_reach_no_job_and_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in [*ODD_FOLDERS, "h100x8-3fa9c1", "A_b.c", "figures", "exports"]:
        Path("results", folder).mkdir(parents=True)
        Path("results", folder, "ddp.json").touch()
    Path("results", "empty;folder").mkdir()
    files = inputs.result_files("ddp", "box")
    assert files == ["results/box/ddp.json", "results/A_b.c/ddp.json", "results/h100x8-3fa9c1/ddp.json"]
    assert inputs.ignored_folders() == sorted(
        ascii(f"results/{folder}") for folder in [*ODD_FOLDERS, "figures", "exports"]
    )
    assert all(name.isprintable() for name in inputs.ignored_folders())


@pytest.mark.parametrize("path", sorted(Path(ROOT, "workflow/rules").glob("*.smk")), ids=lambda path: path.stem)
def test_everything_that_a_shell_command_gets_is_quoted(path: Path) -> None:
    commands = re.findall(r'^ +shell:\n((?: +".*"\n)+)', path.read_text(), re.MULTILINE)
    fields = [field for command in commands for field in re.findall(r"\{[^}]*\}", command)]
    assert all(field.endswith(":q}") for field in fields), fields
    assert len(commands) == path.read_text().count("shell:")
    assert bool(fields) == bool(commands)
