"""Exports of a platform's results, for papers, spreadsheets, tickets and archives."""

from collections.abc import Iterable

EXPERIMENTS = ("strategies", "ddp")  # whose results the table of scaling has
CRATE = "ro-crate-metadata.json"  # which describes the others
RAW = "raw"
OF_ALL = {
    "summary.md": "The report in a few lines: health, scaling, what to use, trust",
    "results.csv": "Every case with its median and 95 % interval, or why it was not measured",
    "results.parquet": "Every sample",
    "citation.bib": "How to cite this measurement",
    CRATE: "What these files are, for archives",
}
SCALING = {
    "scaling.csv": "Strong and weak scaling of every workload",
    "scaling.md": "Strong and weak scaling of every workload, as tables",
    "scaling.tex": "Strong and weak scaling of every workload, as tables for LaTeX",
    "scaling.pdf": "Strong and weak scaling of every workload, as a figure",
}


def linked(names: Iterable[str]) -> list[str]:
    """The files that are exported of these experiments and linked by the report, relative to their folder."""
    return [*OF_ALL, *(SCALING if set(names) & set(EXPERIMENTS) else ())]


def beside(names: Iterable[str]) -> list[str]:
    """The other files, which ro-crate-metadata.json describes too."""
    return ["Snakefile", "settings.json", *(f"{RAW}/{name}.json" for name in names)]
