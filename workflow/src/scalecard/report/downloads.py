"""What the page offers to save: small texts that it holds itself, and the files that are only beside it.

A page that was sent alone has no link to a file: it names them, and the archive that holds them and the page.
"""

import base64
import gzip
import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from scalecard.records.atomic import write_atomically

COPIED = {"summary.md": "Copy summary", "citation.bib": "Cite"}  # what is in the page as text, and the button's label
PACKED = "results.csv"
TYPES = {"summary.md": "text/markdown", "citation.bib": "application/x-bibtex"}
FIGURES = ("svg", "pdf", "column.pdf", "png", "csv")
COMPRESSED = (".gz", ".png", ".pdf", ".parquet")
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the time of every file in an archive, so that equal files make equal archives


@dataclass(frozen=True)
class Download:
    """A text that the page holds: what the link to save it says, and leads to; the text itself if it can be copied."""

    name: str
    label: str
    href: str
    text: str


@dataclass(frozen=True)
class Downloads:
    """What the page holds; the names of the files beside it, by folder; and the name of the archive that has them."""

    embedded: Sequence[Download] = ()
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    archive: str = ""


NO_DOWNLOADS = Downloads()


def embedded(exports: Sequence[Path]) -> list[Download]:
    """Those of the exported files that are in the page; the table is compressed, and report.js unpacks it."""
    by_name = {path.name: path for path in exports}
    texts = {name: by_name[name].read_text("utf-8") for name in COPIED if name in by_name}
    found = [
        Download(name, COPIED[name], f"data:{TYPES[name]};charset=utf-8,{quote(text)}", text)
        for name, text in texts.items()
    ]
    if PACKED in by_name:
        found.append(Download(f"{PACKED}.gz", "CSV", packed(by_name[PACKED].read_bytes()), ""))
    return found


def packed(content: bytes) -> str:
    """A data URL with the compressed content."""
    return f"data:application/gzip;base64,{base64.b64encode(gzip.compress(content, mtime=0)).decode()}"


def figure_files(figures: Path, names: Iterable[str]) -> list[Path]:
    """Those of these figures' files that are there."""
    paths = (figures / f"{name}.{kind}" for name in sorted(names) for kind in FIGURES)
    return [path for path in paths if path.is_file()]


def by_folder(paths: Iterable[Path], report: Path) -> dict[str, list[str]]:
    """The names of the files beside the report, by their folder, relative to the report's."""
    inside = sorted(path.relative_to(report.parent) for path in paths if path.is_relative_to(report.parent))
    return {folder.as_posix(): [path.name for path in own] for folder, own in groupby(inside, lambda path: path.parent)}


def write_archive(archive: Path, report: Path, files: Mapping[str, Sequence[str]]) -> None:
    """Write the report and the files beside it to one file, in which they are in one folder. May raise CannotWrite."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        for path in [report, *(report.parent / folder / name for folder, names in files.items() for name in names)]:
            entry = zipfile.ZipInfo(f"scalecard/{path.relative_to(report.parent).as_posix()}", EARLIEST)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_STORED if path.suffix in COMPRESSED else zipfile.ZIP_DEFLATED
            made.writestr(entry, path.read_bytes())
    write_atomically(archive, content.getvalue())
