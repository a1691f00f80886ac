"""Results of other platforms beside this machine's: shown, never measured, and refused where they cannot be right."""

import os
import re
import shutil
from pathlib import Path

import pytest
from scalecard.hardware.machine import probe
from support.projects import SMOKE, completed, made_at, made_since, outputs, planned, snakemake

pytestmark = pytest.mark.workflow

HERE = probe().slug
KEPT = (".html", ".svg", ".png", ".pdf", ".csv")
CHANGES = 'id="changes"'  # the report's section on what differs between platforms


def add_platform(folder: Path, label: str) -> Path:
    """This machine's all-reduce as the result of another platform."""
    text = (folder / "results" / HERE / "allreduce.json").read_text()
    path = folder / "results" / label / "allreduce.json"
    path.parent.mkdir()
    path.write_text(text.replace(f'"platform": "{HERE}"', f'"platform": "{label}"'))
    return path


def test_another_machine_under_the_same_label_is_refused_before_any_job(own_copy: Path) -> None:
    folder = add_platform(own_copy, "my-box").parent
    facts = (own_copy / "results" / HERE / "machine.json").read_text()
    (folder / "machine.json").write_text(facts.replace('"driver": null', '"driver": "570.1"'))
    before = made_at(own_copy)
    refused = snakemake(own_copy, *SMOKE, "--config", "platform=my-box")
    assert refused.returncode != 0
    for said in ("results/my-box/machine.json", "570.1"):
        assert said in refused.stdout
    assert "Traceback" not in refused.stdout
    assert made_at(own_copy) == before


def test_another_platform_is_shown_beside_this_one_and_never_measured(own_copy: Path) -> None:
    assert CHANGES not in (own_copy / "results" / "report.html").read_text()
    older = add_platform(own_copy, "older-box")
    add_platform(own_copy, "a;touch PWNED;b")
    before = made_at(own_copy)
    assert planned(own_copy, *SMOKE) == outputs(figures=["allreduce"])
    said = completed(own_copy, *SMOKE)
    assert "'results/a;touch PWNED;b': ignored, because it is not named like a platform" in said
    assert not (own_copy / "PWNED").exists()
    assert made_since(own_copy, before) == outputs(figures=["allreduce"])
    report = (own_copy / "results" / "report.html").read_text()
    assert CHANGES in report
    assert report.index(HERE) < report.index("older-box")

    older.unlink()
    assert planned(own_copy, *SMOKE) == outputs(figures=["allreduce"]), "without it"


def test_what_cannot_be_used_of_other_platforms_is_named_and_stops_nothing(own_copy: Path) -> None:
    """A file that is cut off, a copy of this platform's folder, a FIFO, and a broken link."""
    older = add_platform(own_copy, "older-box")
    older.write_text(older.read_text()[:200])
    results = own_copy / "results"
    shutil.copytree(results / HERE, results / "backup")
    for name in ("pipe", "link"):
        (results / name).mkdir()
    os.mkfifo(results / "pipe" / "allreduce.json")
    (results / "link" / "allreduce.json").symlink_to("nowhere")
    said = completed(own_copy, *SMOKE)
    report = (results / "report.html").read_text()
    for name in ("older-box", "backup", "pipe", "link"):
        assert f"left out: {name}/allreduce.json: " in said
        assert f"{name}/allreduce.json" in report
    assert report.count(f"median, {HERE}") == 0, "this platform is alone"


def test_the_last_report_stays_until_there_is_a_new_one(own_copy: Path) -> None:
    """What is wrong with this platform's own file is an error, and takes neither the report nor a figure away."""
    own = own_copy / "results" / HERE / "allreduce.json"
    before = {path: path.read_bytes() for path in (own_copy / "results").glob("**/*.*") if path.suffix in KEPT}
    own.write_text(own.read_text().replace('"passed": true', '"passed": false'))
    refused = snakemake(own_copy, *SMOKE, "--rerun-triggers", "mtime")
    assert refused.returncode != 0
    assert re.search(
        rf"results/{HERE}/allreduce\.json: \$\.records\[\d+\]\.(checks|work)\[\d+\]\.passed: ", refused.stdout
    )
    assert "Traceback" not in refused.stdout
    assert {path: path.read_bytes() for path in before} == before
