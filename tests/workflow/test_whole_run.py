"""One whole run at the smoke scale: what it leaves, and that there is nothing to do after it."""

import gzip
import html
import itertools
import json
import re
import time
import zipfile
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote_plus

import pandas as pd
import pytest
from scalecard import experiments, exports
from scalecard.benchmarks.training.cut_model import num_blocks
from scalecard.hardware.machine import probe
from scalecard.jobs import needs, plan
from scalecard.report import answers, sections, toc
from scalecard.report.downloads import FIGURES
from support.projects import SMOKE, completed, copy_project, made_at, outputs, planned, results_of
from support.shapes import SHAPES

pytestmark = pytest.mark.workflow

HERE = probe().slug


def test_a_dry_run_plans_every_experiment_and_measures_nothing(tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "project")
    assert planned(folder, *SMOKE) == outputs(experiments.names()) | {f"{HERE}/container.json"}
    completed(folder, *SMOKE, "--dry-run")
    assert set(made_at(folder)) == {f"{HERE}/machine.json"}


def test_every_experiment_leaves_a_result_a_figure_and_its_section(measured: Path) -> None:
    report = (measured / "results" / "report.html").read_text()
    results = results_of(measured)
    assert sorted(results) == experiments.names()
    for name, result in results.items():
        assert result.count("ok"), name
        assert (measured / "results" / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert (measured / "results" / "figures" / f"{name}.png").stat().st_size > 5_000
        assert f'<section id="{name}"' in report
    for name in answers.names():
        assert (measured / "results" / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert f'<section id="{name}"' in report


# What even the smoke scale shows more than one of.
SEVERAL = ("split sizes of each schedule", "lines across", "bucket sizes", "scalings")
IN_NUMBER = ("accuracy", "share of the time")  # only the default run learns, and times for half of its time


def test_every_figure_of_the_textbooks_has_its_shape_in_kind(measured: Path) -> None:
    """In number it is that of the default run (tests/benchmarks/default_run.py)."""
    results = results_of(measured)
    for name, value, _ in SHAPES:
        least = 0 if any(words in name for words in IN_NUMBER) else 1 + any(words in name for words in SEVERAL)
        assert value(results) >= least, name
    assert all(result.spent["timed"] > 0 for result in results.values())


COUNTED = ("allreduce", "ddp", "heterogeneous", "hybrid", "model_parallel", "pipeline", "strategies", "tensor_parallel")
DERIVED = ("enqueue_time", "epoch_time", "rank_time", "accuracy", "peak_memory", "played_time")  # of what is counted


@pytest.mark.parametrize("name", COUNTED)
def test_the_estimate_of_need_counts_what_a_run_times(measured: Path, name: str) -> None:
    """Elsewhere the counts are of GPUs alone. `pipeline` also times blocks, of which it keeps no record."""
    result = results_of(measured)[name]
    timed = {
        (record.metric, json.dumps(record.case))
        for record in result.records
        if record.status == "ok" and record.telemetry and record.metric not in DERIVED
    }
    assert all(count == num_blocks(model) for model, count in needs.BLOCKS.items())
    need = needs.need(name, result.spec, "full", devices=probe().num_devices, nodes=1)
    expected = need.points + need.variants - (needs.BLOCKS[result.spec["model"]] if name == "pipeline" else 0)
    assert 3 / 4 < len(timed) / expected < 4 / 3


def test_a_first_look_is_a_report_of_what_is_measured_first(own_copy: Path) -> None:
    completed(own_copy, "first_look", *SMOKE)
    page = (own_copy / "results" / "first_look.html").read_text()
    assert [name for name in experiments.names() if f'<section id="{name}"' in page] == sorted(plan.FIRST_LOOK)
    assert planned(own_copy, "first_look", *SMOKE) == set()


def test_every_case_that_was_timed_was_proven_and_counted(measured: Path) -> None:
    for name, result in results_of(measured).items():
        for record in result.records:
            if record.status == "ok" and record.metric in ("time", "step_time", "epoch_time", "other_recipe_time"):
                assert record.checks, (name, record.case)
                assert record.work, (name, record.case)


def test_the_strangers_model_gets_its_bar_its_table_its_forecast_and_advice_in_grey(measured: Path) -> None:
    report = (measured / "results" / "report.html").read_text()
    why, use, forecast, save = (section_of(report, name) for name in answers.names())
    for section in (why, use, forecast, save):
        assert "<svg" in section
        assert "A trial of the method, no advice:" in section
    assert "stranger, DDP on 2 devices: a step takes" in why
    assert "Where the time of a step goes" in why
    assert "Checkpoints" in save
    assert "Every strategy, by devices" in use
    assert "float32, blocks recomputed" in use
    said = "<td>stranger, AdamW in float32, 2 micro-batches, clipped: "
    assert 1 <= use.count(said) <= 4, "a sentence at least, four at most"
    assert "The forecasts of steps on 2 devices, none of which they had seen, miss the measured times by" in forecast
    said = r"stranger, .+, same total batch: 4 devices: (about|perhaps) [\d.]+x of one"
    assert re.search(said, html.unescape(forecast))


def test_what_one_takes_along_is_of_every_experiment_and_in_the_archive(measured: Path) -> None:
    report, folder = measured / "results" / "report.html", measured / "results" / "exports" / HERE
    every = set(experiments.names())
    assert set(pd.read_csv(folder / "results.csv").experiment) == every
    assert set(pd.read_parquet(folder / "results.parquet").experiment) == every
    with zipfile.ZipFile(measured / "results" / "report.zip") as archive:
        assert archive.read("scalecard/report.html") == report.read_bytes()
        packed = set(archive.namelist())
    assert {f"scalecard/exports/{HERE}/{name}" for name in exports.linked(every)} < packed
    assert {f"scalecard/figures/{name}.{kind}" for name in every for kind in FIGURES} < packed
    for name in every:
        own = measured / "results" / HERE / f"{name}.json"
        assert (folder / "raw" / f"{name}.json").read_bytes() == own.read_bytes()


def section_of(report: str, name: str) -> str:
    start = report.index(f'<section id="{name}"')
    return report[start : report.index("</section>", start)]


def test_a_trace_of_every_strategy_is_beside_the_report_which_names_it(measured: Path) -> None:
    report = (measured / "results" / "report.html").read_text()
    (strategies,) = [result for result in results_of(measured).values() if result.experiment == "strategies"]
    traces = sorted((measured / "results" / HERE / "traces" / "strategies").iterdir())
    assert len(traces) == sum(record.metric == "step_time" for record in strategies.records if record.status == "ok")
    for path in traces:
        names = {event.get("name") for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]}
        assert names & {"aten::addmm", "aten::mm", "aten::linear", "aten::matmul"}, path.name
        assert f"<li>{html.escape(unquote_plus(path.name.removesuffix('.json.gz')))}</li>" in report
    assert f"<code>results/{HERE}/traces/strategies/</code>: {len(traces)} files" in report


def test_measurements_never_overlap(measured: Path) -> None:
    spans = sorted((r.started, r.finished) for r in results_of(measured).values())
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert datetime.fromisoformat(end) <= datetime.fromisoformat(start)


def test_nothing_to_do_the_second_time_and_quickly(measured: Path) -> None:
    before, start = made_at(measured), time.monotonic()
    completed(measured, *SMOKE)
    assert time.monotonic() - start < 15, "4 s on a quiet machine"
    assert made_at(measured) == before
    assert planned(measured, *SMOKE) == set()


def test_one_experiment_can_be_measured_again(measured: Path) -> None:
    assert planned(measured, *SMOKE, "--forcerun", "ddp") == outputs(["ddp"])


def test_snakemakes_own_report_has_the_figures_with_captions(measured: Path, tmp_path: Path) -> None:
    completed(measured, *SMOKE, "--report", str(tmp_path / "snakemake-report.html"))
    text = (tmp_path / "snakemake-report.html").read_text()
    assert "results/figures/pipeline.svg" in text
    assert toc.docstring(sections.load("pipeline"))[0] in text
