"""Real workflow runs in a copy of the project, at the smoke scale: whole, nothing to do, edits, kills, bad files."""

import dataclasses
import itertools
import os
import shutil
import signal
import subprocess
import time
from datetime import datetime
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from conftest import snakemake, snakemake_in_background
from scalecard import machine as machines
from scalecard import schema, sections, specs, tables

SMOKE = ("--configfile", "tests/smoke.yaml")


@pytest.fixture(scope="module")
def measured(project: Path) -> Path:
    """The project after one whole smoke run."""
    planned = snakemake(project, *SMOKE, "-n")
    assert planned.returncode == 0, planned.stdout
    assert not list(project.glob("results/*/allreduce.json")), "a dry run measures nothing"
    done = snakemake(project, *SMOKE)
    assert done.returncode == 0, done.stdout[-6000:]
    return project


def jobs(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The rules that a run executed."""
    assert done.returncode == 0, done.stdout[-6000:]
    return [
        line.split()[1].rstrip(":") for line in done.stdout.splitlines() if line.startswith(("rule ", "localrule "))
    ]


def results(project: Path) -> dict[str, schema.Result]:
    here = project / "results" / machines.probe().slug
    return {name: schema.load(here / f"{name}.json") for name in specs.experiment_names()}


def test_every_experiment_leaves_a_result_a_figure_and_its_section(measured: Path) -> None:
    report = (measured / "results" / "report.html").read_text()
    for name, result in results(measured).items():
        assert any(record.status == "ok" for record in result.records), name
        assert (measured / "results" / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert (measured / "results" / "figures" / f"{name}.png").stat().st_size > 5_000
        assert f'<section id="{name}"' in report


def failed(record: schema.Record) -> schema.Record:
    return dataclasses.replace(record, status="failed", samples=[], note="out of memory", telemetry=[], checks=[])


@pytest.mark.parametrize("which", ["all", "first half", "second half", "times"])
def test_a_section_does_with_what_was_measured(measured: Path, which: str) -> None:
    for name, result in results(measured).items():
        half = len(result.records) // 2
        lost = {
            "all": lambda i, r: True,
            "first half": lambda i, r, half=half: i < half,
            "second half": lambda i, r, half=half: i >= half,
            "times": lambda i, r: r.unit == "s",
        }[which]
        records = [failed(r) if lost(i, r) else r for i, r in enumerate(result.records)]
        damaged = dataclasses.replace(result, records=records)
        figure = sections.load(name).plot([damaged])
        assert figure.axes, name
        plt.close(figure)
        assert all(finding.text for finding in sections.load(name).findings([damaged])), name
        assert tables.absent([damaged]), name


def test_every_parallel_case_was_proven(measured: Path) -> None:
    for name, result in results(measured).items():
        parallel = [r for r in result.records if r.status == "ok" and r.checks]
        needs_proof = name not in ("dp_concise",) or not result.emulated
        assert parallel or not needs_proof, name
    for record in results(measured)["pipeline"].records:
        if record.status == "ok" and record.case["implementation"] not in ("single device", "model parallel"):
            assert record.checks, record.case


def test_measurements_never_overlap(measured: Path) -> None:
    spans = sorted((r.started, r.finished) for r in results(measured).values())
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert datetime.fromisoformat(end) <= datetime.fromisoformat(start)


def test_nothing_to_do_the_second_time_and_quickly(measured: Path) -> None:
    start = time.monotonic()
    done = snakemake(measured, *SMOKE)
    assert jobs(done) == []
    assert "Nothing to be done" in done.stdout
    assert time.monotonic() - start < 15, "4 s on a quiet machine"


def test_editing_a_section_redraws_only_its_figure_and_the_report(measured: Path) -> None:
    section = measured / "workflow" / "src" / "scalecard" / "sections" / "allreduce.py"
    section.write_text(section.read_text().replace('title="time"', 'title="time of one"'))
    assert sorted(jobs(snakemake(measured, *SMOKE))) == ["all", "figure", "report"]


def test_editing_an_experiment_measures_it_alone(measured: Path) -> None:
    module = measured / "workflow" / "src" / "scalecard" / "experiments" / "async_timing.py"
    module.write_text(module.read_text() + "\n# a comment\n")
    assert sorted(jobs(snakemake(measured, *SMOKE))) == ["all", "async_timing", "figure", "report"]


def test_one_experiment_can_be_measured_again(measured: Path) -> None:
    planned = snakemake(measured, *SMOKE, "-n", "--forcerun", "ddp")
    assert "ddp" in jobs(planned)
    assert "allreduce" not in jobs(planned)


def test_another_machine_under_the_same_label_is_refused_before_any_job(measured: Path) -> None:
    here = measured / "results" / machines.probe().slug
    labelled = measured / "results" / "my-box"
    labelled.mkdir()
    (labelled / "allreduce.json").write_text((here / "allreduce.json").read_text())
    facts = (here / "machine.json").read_text().replace('"driver": null', '"driver": "570.1"')
    (labelled / "machine.json").write_text(facts)
    refused = snakemake(measured, *SMOKE, "--config", "platform=my-box")
    shutil.rmtree(labelled)
    assert refused.returncode != 0
    assert "results/my-box/machine.json: the results under the label 'my-box'" in refused.stdout
    assert "driver 570.1, now None" in refused.stdout
    assert "Traceback" not in refused.stdout


def test_another_platform_is_shown_beside_this_one_and_never_measured(measured: Path) -> None:
    other = measured / "results" / "older-box"
    other.mkdir()
    here = measured / "results" / machines.probe().slug
    text = (here / "allreduce.json").read_text().replace(f'"platform": "{here.name}"', '"platform": "older-box"')
    (other / "allreduce.json").write_text(text)
    assert sorted(jobs(snakemake(measured, *SMOKE))) == ["all", "figure", "report"]
    report = (measured / "results" / "report.html").read_text()
    assert "older-box" in report
    assert "From older-box to this one" in report
    assert "Nothing that was recorded differs between the two environments" in report
    assert report.index(here.name) < report.index("older-box")

    (other / "allreduce.json").write_text(text[:200])
    refused = snakemake(measured, *SMOKE)
    assert refused.returncode != 0
    assert "results/older-box/allreduce.json: not a readable JSON file" in refused.stdout
    (other / "allreduce.json").unlink()
    assert "report" in jobs(snakemake(measured, *SMOKE))


def test_snakemakes_own_report_has_the_figures_with_captions(measured: Path) -> None:
    done = snakemake(measured, *SMOKE, "--report", "snakemake-report.html")
    assert done.returncode == 0, done.stdout[-3000:]
    text = (measured / "snakemake-report.html").read_text()
    assert "results/figures/pipeline.svg" in text
    assert "How small should micro-batches be" in text


def measuring(name: str) -> list[int]:
    """Processes of the command line that measure this experiment."""
    found = subprocess.run(["pgrep", "-f", f"^python -m scalecard run {name} "], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def wait_until_measuring(name: str) -> int:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        pids = measuring(name)
        if pids:
            time.sleep(3)  # past the imports
            return pids[0]
        time.sleep(0.2)
    raise TimeoutError(name)


def test_a_killed_rule_leaves_nothing_and_the_next_run_completes(measured: Path) -> None:
    target = measured / "results" / machines.probe().slug / "dp_scratch.json"
    target.unlink()
    running = snakemake_in_background(measured, Path(os.devnull), str(target.relative_to(measured)), *SMOKE)
    os.kill(wait_until_measuring("dp_scratch"), signal.SIGKILL)
    assert running.wait(120) != 0
    assert not target.exists()
    assert "dp_scratch" in jobs(snakemake(measured, *SMOKE))
    assert schema.load(target).records


def test_the_orphan_of_a_killed_snakemake_and_the_next_run_do_not_overlap(measured: Path) -> None:
    target = measured / "results" / machines.probe().slug / "pipeline.json"
    target.unlink()
    running = snakemake_in_background(measured, Path(os.devnull), str(target.relative_to(measured)), *SMOKE)
    orphan = wait_until_measuring("pipeline")
    running.kill()
    running.wait(30)
    assert measuring("pipeline") == [orphan], "it lives on"
    snakemake(measured, "--unlock")
    done = snakemake(measured, *SMOKE)
    assert "pipeline" in jobs(done)
    assert f"waiting for process {orphan}" in done.stdout
    assert schema.load(target).records
