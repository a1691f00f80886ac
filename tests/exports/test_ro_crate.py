"""The crate of the exports, read by rocrate, has what the profile Workflow Run Crate 0.5 requires.

https://www.researchobject.org/workflow-run-crate/profiles/workflow_run_crate/. The validator of RO-Crates
(roc-validator) needs a network and an older `rich` than import-linter, so it is not among the locked packages.
"""

import getpass
import json
import platform
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rocrate.rocrate import ROCrate
from support.exported import files, results

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("exports")
    for name, content in files(8).items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_bytes(content)
    return made


@pytest.fixture(scope="module")
def crate(folder: Path) -> ROCrate:
    return ROCrate(folder)


def ids(found: Any) -> set[str]:
    """Of what a property refers to; rocrate gives an address that the crate does not describe as text."""
    return {getattr(entity, "id", entity) for entity in (found if isinstance(found, list) else [found])}


def test_the_root_conforms_to_the_profiles_and_has_what_is_required(crate: ROCrate) -> None:
    root = crate.root_dataset
    assert ids(root["conformsTo"]) == PROFILES
    assert all(profile.type == "CreativeWork" and profile["version"] for profile in root["conformsTo"])
    assert ids(crate.metadata["conformsTo"]) == {
        "https://w3id.org/ro/crate/1.1",
        "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
    }
    assert all(root[name] for name in ("name", "description", "license"))
    assert datetime.fromisoformat(str(root["datePublished"])).year == 2026
    assert results(8)[0].environment["fingerprint"] in root["identifier"]


def test_every_exported_file_is_described_and_there(crate: ROCrate, folder: Path) -> None:
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    parts = {entity.id: entity for entity in crate.root_dataset["hasPart"]}
    assert set(parts) == there - {"ro-crate-metadata.json"}
    for name, entity in parts.items():
        assert "File" in entity.type
        assert int(entity["contentSize"]) == (folder / name).stat().st_size
        assert all(entity[key] for key in ("name", "description", "encodingFormat"))


def test_the_workflow_is_the_main_entity_with_its_language_and_software(crate: ROCrate) -> None:
    workflow = crate.mainEntity
    assert workflow.id == "Snakefile"
    assert {"File", "SoftwareSourceCode", "ComputationalWorkflow"} == set(workflow.type)
    assert (workflow["programmingLanguage"].type, workflow["programmingLanguage"]["name"]) == (
        "ComputerLanguage",
        "Snakemake",
    )
    software = {entity["name"]: entity["softwareVersion"] for entity in workflow["softwareRequirements"]}
    assert software["PyTorch"] == results(8)[0].environment["torch"]
    assert software["NVIDIA driver"] == "580.1"


def test_the_run_is_an_action_of_the_workflow_from_settings_to_results(crate: ROCrate) -> None:
    (run,) = crate.get_by_type("CreateAction")
    assert run in crate.root_dataset["mentions"]
    assert run["instrument"].id == crate.mainEntity.id
    assert ids(run["object"]) == {"settings.json"}
    assert {"results.parquet", "scaling.pdf", "raw/ddp.json"} < ids(run["result"])
    assert (run["startTime"], run["endTime"]) == ("2026-01-01T00:00:00.000+00:00", "2026-01-01T00:10:00.000+00:00")
    assert run["actionStatus"] == "http://schema.org/CompletedActionStatus"


def test_every_reference_leads_somewhere(folder: Path) -> None:
    """An @id that is no web address is that of an entity in the file."""
    graph = json.loads((folder / "ro-crate-metadata.json").read_text())["@graph"]
    known = {entity["@id"] for entity in graph}
    assert len(known) == len(graph), "no two of the same name"
    values = [value for entity in graph for value in entity.values()]
    every = [one for value in values for one in (value if isinstance(value, list) else [value])]
    named = {one["@id"] for one in every if isinstance(one, dict)}
    assert all(name.startswith(("https://", "http://")) for name in named - known)


def test_the_settings_are_those_of_each_experiment(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    assert settings == {result.experiment: result.spec for result in results(8)}


def test_no_person_and_no_host_is_named(folder: Path) -> None:
    written = (folder / "ro-crate-metadata.json").read_text()
    assert '"Person"' not in written
    for name in (platform.node(), getpass.getuser()):
        assert len(name) < 5 or name not in written
