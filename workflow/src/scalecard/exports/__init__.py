"""Exports of a platform's results, for papers, spreadsheets, tickets and archives."""

from collections.abc import Iterable

EXPERIMENTS = ("strategies", "ddp")  # whose results the table of scaling has
SCALING = tuple(f"scaling.{suffix}" for suffix in ("csv", "md", "tex", "pdf"))
CRATE = "ro-crate-metadata.json"  # which describes the others
OF_ALL = ("summary.md", "results.csv", "results.parquet", "citation.bib", CRATE)
RAW = "raw"


def linked(names: Iterable[str]) -> list[str]:
    """The files that are exported of these experiments and linked by the report, relative to their folder."""
    return [*OF_ALL, *(SCALING if set(names) & set(EXPERIMENTS) else ())]


def beside(names: Iterable[str]) -> list[str]:
    """The other files, which ro-crate-metadata.json describes too."""
    return ["Snakefile", "settings.json", *(f"{RAW}/{name}.json" for name in names)]
