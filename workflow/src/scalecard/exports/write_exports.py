"""Everything that is exported of one platform, written to one folder."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from scalecard.analysis.platforms import LeftOut, attempt, gather
from scalecard.exports import CRATE, RAW, beside, linked, long_tables, metadata, scaling
from scalecard.exports.summary_text import summary
from scalecard.hardware.facts import ROOT
from scalecard.records.atomic import write_atomically
from scalecard.records.files import as_json
from scalecard.records.record import Result
from scalecard.report.pages import MISSING


def export(paths: Sequence[Path], output: Path | None = None) -> tuple[Path, list[LeftOut]]:
    """Write the exports of one platform's result files to a folder, which is made if it is missing.

    Without `output` it is exports/<platform>, beside the platform's own. Returns the folder, and what could not be
    computed: its files say so. InvalidResult names a result that cannot be read.
    """
    own = paths[0].parent.resolve()
    folder = output or own.parent / "exports" / own.name
    contents, left_out = of_results(gather(paths).results)
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return folder, left_out


def of_results(results: Sequence[Result]) -> tuple[dict[str, bytes], list[LeftOut]]:
    """The files by name, the same bytes for the same results, and what could not be computed."""
    left_out, contents = list[LeftOut](), {metadata.WORKFLOW: (ROOT / metadata.WORKFLOW).read_bytes()}
    for what, make in FORMATS.items():
        contents |= attempt(f"export {what}", partial(make, results), left_out) or {}
    names = [result.experiment for result in results]
    contents = {**dict.fromkeys([*linked(names), *beside(names)], MISSING), **contents}
    del contents[CRATE]
    return {**contents, CRATE: metadata.ro_crate(results, contents)}, left_out


# What the files are of, and their contents by name.
FORMATS: dict[str, Callable[[Sequence[Result]], dict[str, bytes]]] = {
    "summary.md": lambda results: {"summary.md": summary(results).encode()},
    "results.csv": lambda results: {"results.csv": long_tables.as_csv(results)},
    "results.parquet": lambda results: {"results.parquet": long_tables.as_parquet(results)},
    "citation.bib": lambda results: {"citation.bib": metadata.citation(results).encode()},
    "scaling": scaling.of_results,
    "raw data": lambda results: {
        "settings.json": f"{json.dumps({r.experiment: r.spec for r in results}, indent=1)}\n".encode(),
        **{f"{RAW}/{r.experiment}.json": f"{as_json(r, indent=1)}\n".encode() for r in results},
    },
}
