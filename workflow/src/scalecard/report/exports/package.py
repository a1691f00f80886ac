"""Everything that is exported of one platform, written to one folder."""

import json
from collections.abc import Sequence
from pathlib import Path

from scalecard.hardware.machine import ROOT
from scalecard.records.atomic import write_atomically
from scalecard.records.files import as_json
from scalecard.records.record import Result
from scalecard.report.exports import RAW, cite, crate, scaling, tidy
from scalecard.report.exports.summary_text import summary
from scalecard.report.gather import gather

SNAKEFILE = ROOT / "Snakefile"


def export(paths: Sequence[Path], output: Path | None = None) -> Path:
    """Write the exports of one platform's result files to a folder, which is made if it is missing, and return it.

    Without `output` it is exports/<platform>, beside the platform's own. All is computed before anything is written:
    InvalidResult names a result that cannot be used.
    """
    own = paths[0].parent.resolve()
    folder = output or own.parent / "exports" / own.name
    for name, content in of_results(gather(paths).results).items():
        write_atomically(folder / name, content)
    return folder


def of_results(results: Sequence[Result]) -> dict[str, bytes]:
    """The files by name: the same bytes for the same results."""
    contents = {
        "summary.md": summary(results).encode(),
        "results.csv": tidy.as_csv(results),
        "results.parquet": tidy.as_parquet(results),
        "citation.bib": cite.citation(results).encode(),
        **scaling.of_results(results),
        "Snakefile": SNAKEFILE.read_bytes(),
        "settings.json": _settings(results),
        **{f"{RAW}/{result.experiment}.json": _as_measured(result) for result in results},
    }
    return {**contents, "ro-crate-metadata.json": crate.as_json(results, contents)}


def _settings(results: Sequence[Result]) -> bytes:
    return (json.dumps({result.experiment: result.spec for result in results}, indent=1) + "\n").encode()


def _as_measured(result: Result) -> bytes:
    """The content of its file."""
    return (as_json(result, indent=1) + "\n").encode()
