"""ScaleCard by Snakemake's conventions: as a module of another workflow, which lies elsewhere, and as an archive."""

import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from scalecard.hardware.machine import probe
from snakemake.utils import update_config
from support.blocks import CONFIG
from support.projects import ROOT, SMOKE, completed, copy_project, planned, results_of, snakemake

pytestmark = pytest.mark.workflow

DOCUMENT = (ROOT / "config" / "README.md").read_text()


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    """Another workflow's folder, beside the project's; its path has a space, and its own configuration a date."""
    project = copy_project(tmp_path / "the project")
    folder = tmp_path / "another workflow"
    folder.mkdir()
    (snakefile,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    (folder / "Snakefile").write_text(snakefile.replace("/path/to/scalecard", str(project)))
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


def test_the_archive_of_a_repository_runs_as_the_repository_does(tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    for arguments in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=x", "-c", "user.email=x@y.z", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *arguments], cwd=project, check=True)
    archive = tmp_path / "scalecard.tar.gz"
    completed(project, "--archive", str(archive), *SMOKE)
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    assert planned(tmp_path / "unpacked", *SMOKE) == planned(project, *SMOKE)


def test_the_catalog_finds_what_it_looks_for() -> None:
    """Source: the catalog's own scripts/generate-catalog.py reads these keys of `usage`."""
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage.keys() == {"mandatory-flags", "software-stack-deployment", "report"}
    assert usage["software-stack-deployment"] == {"conda": False, "apptainer": True, "apptainer+conda": False}
    assert "container:" in (ROOT / "Snakefile").read_text(), "without it `--sdm apptainer` does nothing"
    words = (ROOT / "README.md").read_text().lower()
    assert {"snakemake", "workflow"} <= set(re.findall(r"\w+", words))
