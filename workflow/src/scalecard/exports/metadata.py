"""How to cite a measurement (citation.bib), and what the exported files are (ro-crate-metadata.json), for archives.

The latter is a Workflow Run RO-Crate (https://w3id.org/ro/wfrun/workflow/0.5): JSON-LD about a folder, the files in it,
and the run of the workflow that made them. Neither names a person or a host.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from scalecard import __version__
from scalecard.analysis.provenance import commits, provenance
from scalecard.exports import CRATE, OF_ALL, RAW, SCALING
from scalecard.hardware.facts import ROOT
from scalecard.hardware.machine import from_facts
from scalecard.records.record import Result
from scalecard.report.table import latex, one_line

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
Entity = dict[str, Any]

CONTEXT = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
WORKFLOW = "Snakefile"
WORKFLOW_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    WORKFLOW_CRATE: ("Workflow RO-Crate", "1.0"),
}
SNAKEMAKE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
SOFTWARE = {
    "python": ("Python", "https://www.python.org"),
    "torch": ("PyTorch", "https://pytorch.org"),
    "cuda": ("CUDA", "https://developer.nvidia.com/cuda-toolkit"),
    "cudnn": ("cuDNN", "https://developer.nvidia.com/cudnn"),
    "nccl": ("NCCL", "https://developer.nvidia.com/nccl"),
    "driver": ("NVIDIA driver", "https://www.nvidia.com/drivers"),
}
TYPES = {
    ".csv": "text/csv",
    ".json": "application/json",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".pdf": "application/pdf",
    ".tex": "application/x-tex",
    ".bib": "application/x-bibtex",
}
DESCRIPTIONS = {
    **OF_ALL,
    **SCALING,
    "settings.json": "The values of config.yaml that each experiment was measured with",
}


def citation(results: Sequence[Result]) -> str:
    """Two entries: one platform's results, by fingerprint, commit and date, without an author; and ScaleCard."""
    measured = max(result.finished for result in results)
    fingerprint = results[0].environment["fingerprint"]
    devices = "emulated devices on " if any(result.emulated for result in results) else ""
    fields = {
        "title": f"Parallel training measured on {devices}{from_facts(results[0].environment['machine']).describe()}",
        "year": measured[:4],
        "month": measured[5:7],
        "howpublished": "Results of ScaleCard",
        "note": f"Platform fingerprint {fingerprint}; {provenance(results)}",
    }
    of_results = _bibtex("misc", f"scalecard-{results[0].platform}", fields)
    about: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    version = f"{__version__}, measured at commit {', '.join(commits(results))}"
    fields = {"title": about["title"], "version": version, "license": about["license"]}
    if url := about.get("repository-code"):
        fields["url"] = url
    of_scalecard = _bibtex("software", "scalecard", fields, " and ".join(map(_author, about["authors"])))
    return f"% Who measured is not recorded: add an author.\n{of_results}\n{of_scalecard}"


def _author(author: Mapping[str, str]) -> str:
    """A name that BibTeX keeps together, or one of a person."""
    if "name" in author:
        return f"{{{latex(author['name'])}}}"
    return latex(f"{author['family-names']}, {author['given-names']}")


def _bibtex(kind: str, key: str, fields: Mapping[str, str], authors: str = "") -> str:
    """Titles are in a second pair of braces, in which styles keep capitals."""
    shown = {"author": f"{{{authors}}}"} if authors else {}
    for name, value in fields.items():
        text = f"{{{latex(value)}}}"
        shown[name] = MONTHS[int(value) - 1] if name == "month" else f"{{{text}}}" if name == "title" else text
    lines = "".join(f"  {name:<12} = {value},\n" for name, value in shown.items())
    return f"@{kind}{{{re.sub('[^A-Za-z0-9-]+', '-', one_line(key))},\n{lines}}}\n"


def ro_crate(results: Sequence[Result], files: Mapping[str, bytes]) -> bytes:
    """The description of one platform's exported files, given by name with their contents, Snakefile among them."""
    made = [_file(name, content) for name, content in files.items() if name != WORKFLOW]
    software = list(_software(results))
    graph = [
        DESCRIPTOR,
        _root(results, [WORKFLOW, *(entity["@id"] for entity in made)]),
        *(_entity(uri, "CreativeWork", name=name, version=version) for uri, (name, version) in PROFILES.items()),
        _workflow(results, files[WORKFLOW], software),
        LANGUAGE,
        _run(results, [entity["@id"] for entity in made]),
        *made,
        *software,
        *BESIDE,
        LICENSE,
    ]
    return (json.dumps({"@context": CONTEXT, "@graph": graph}, indent=1, ensure_ascii=False) + "\n").encode()


def _entity(uri: str, kind: str | list[str], /, **properties: Any) -> Entity:
    return {"@id": uri, "@type": kind, **properties}


def _to(name: str) -> Entity:
    return {"@id": name}


DESCRIPTOR = _entity(
    CRATE,
    "CreativeWork",
    about=_to("./"),
    conformsTo=[_to("https://w3id.org/ro/crate/1.1"), _to(WORKFLOW_CRATE)],
)
LANGUAGE = _entity(
    SNAKEMAKE,
    "ComputerLanguage",
    name="Snakemake",
    identifier=_to("https://doi.org/10.1093/bioinformatics/bts480"),
    url=_to("https://snakemake.readthedocs.io"),
)
# Drawn of the same results, and outside of the folder: the report links it, and figures are of all platforms.
BESIDE = [
    _entity(
        "#report",
        "CreativeWork",
        name="results/report.html",
        description="The report on these results. It is written after these files, and not among them.",
        encodingFormat="text/html",
    ),
    _entity(
        "#figures",
        "CreativeWork",
        name="results/figures",
        description="A figure per experiment, of all platforms. The report has them, and this folder has not.",
        encodingFormat="image/svg+xml",
    ),
]
LICENSE = _entity(
    "#license",
    "CreativeWork",
    name="Not chosen yet",
    description="ScaleCard records no names: whoever publishes these files chooses their license.",
)


def _root(results: Sequence[Result], parts: Sequence[str]) -> Entity:
    return _entity(
        "./",
        "Dataset",
        name=f"Parallel training measured on {results[0].platform}",
        description=provenance(results),
        identifier=f"{results[0].environment['fingerprint']} at commit {', '.join(commits(results))}",
        datePublished=max(result.finished for result in results),
        license=_to(LICENSE["@id"]),
        conformsTo=list(map(_to, PROFILES)),
        mainEntity=_to(WORKFLOW),
        hasPart=list(map(_to, parts)),
        mentions=[_to("#run"), *(_to(entity["@id"]) for entity in BESIDE)],
    )


def _workflow(results: Sequence[Result], content: bytes, software: Sequence[Entity]) -> Entity:
    return _entity(
        WORKFLOW,
        ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
        name="ScaleCard",
        description="Measures parallel training on one's own hardware, and writes one report of it.",
        version=f"commit {', '.join(commits(results))}",
        contentSize=str(len(content)),
        encodingFormat="text/plain",
        license="Apache-2.0",
        conformsTo=_to("https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"),
        programmingLanguage=_to(SNAKEMAKE),
        softwareRequirements=[_to(entity["@id"]) for entity in software],
    )


def _run(results: Sequence[Result], made: Sequence[str]) -> Entity:
    """From the first measurement's start to the last one's end."""
    return _entity(
        "#run",
        "CreateAction",
        name=f"Measurement of {', '.join(result.experiment for result in results)}",
        description=f"{sum(r.count('failed') for r in results)} cases failed. {provenance(results)}",
        startTime=min(result.started for result in results),
        endTime=max(result.finished for result in results),
        actionStatus="http://schema.org/CompletedActionStatus",
        instrument=_to(WORKFLOW),
        object=_to("settings.json"),
        result=[_to(name) for name in made if name != "settings.json"],
    )


def _file(name: str, content: bytes) -> Entity:
    path = PurePosixPath(name)
    of_experiment = f"Every record of the experiment {path.stem}: samples, proofs, telemetry, environment"
    description = of_experiment if path.parent.name == RAW else DESCRIPTIONS[name]
    size, form = str(len(content)), TYPES[path.suffix]
    return _entity(name, "File", name=name, description=description, contentSize=size, encodingFormat=form)


def _software(results: Sequence[Result]) -> Iterator[Entity]:
    environment = results[0].environment
    versions = {**environment, "driver": environment["machine"]["driver"]}
    for key, (name, url) in SOFTWARE.items():
        if version := versions[key]:
            yield _entity(url, "SoftwareApplication", name=name, softwareVersion=str(version), url=url)
