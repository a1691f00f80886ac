"""ScaleCard as a module of another workflow, which lies elsewhere and hands the configuration on."""

import json
from pathlib import Path

import pytest
import yaml
from scalecard.hardware.machine import probe
from snakemake.utils import update_config
from support.blocks import CONFIG
from support.projects import ROOT, completed, copy_project, planned, results_of, snakemake

pytestmark = pytest.mark.workflow

SNAKEFILE = """
configfile: "config.yaml"

module scalecard:
    snakefile:
        "{project}/workflow/Snakefile"
    config:
        config["scalecard"]

use rule * from scalecard as scalecard_*

rule all:
    default_target: True
    input:
        rules.scalecard_report.output.html,
        "own.txt",

rule own:
    output:
        "own.txt",
    shell:
        "date > {{output}}"
"""


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    """Another workflow's folder, beside the project's; its path has a space, and its own configuration a date."""
    project = copy_project(tmp_path / "the project")
    folder = tmp_path / "another workflow"
    folder.mkdir()
    (folder / "Snakefile").write_text(SNAKEFILE.format(project=project))
    config = json.loads(json.dumps(CONFIG))
    update_config(config, yaml.safe_load((ROOT / "tests" / "smoke.yaml").read_text()))
    config["experiments"] = {"async_timing": config["experiments"]["async_timing"]}
    config["container"]["engine"] = "none"
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"scalecard": config, "since": "x"}).replace(": x", ": 2026-01-01")
    )
    return folder


def test_it_measures_and_draws_in_the_other_workflows_folder(workflow: Path) -> None:
    here = probe().slug
    expected = {f"{here}/async_timing.json", "figures/async_timing.svg", "report.html", f"{here}/container.json"}
    assert expected <= planned(workflow, "--cores", "2")
    completed(workflow, "--cores", "2")
    assert results_of(workflow)["async_timing"].count("ok")
    assert (workflow / "results" / "report.html").exists()
    assert not (workflow.parent / "the project" / "results").exists()
    assert planned(workflow, "--cores", "2") == set()


def test_a_wrong_value_is_named_as_in_the_projects_own_folder(workflow: Path) -> None:
    text = (workflow / "config.yaml").read_text()
    (workflow / "config.yaml").write_text(text.replace("products:", "prodcts:"))
    done = snakemake(workflow, "-n", "--cores", "2")
    assert done.returncode == 1
    assert "experiments.async_timing.prodcts: unknown key; did you mean 'products'?" in done.stdout
