"""The cases of a comparison as a table."""

from collections.abc import Sequence

from scalecard.analysis import formatting, ratio_text
from scalecard.analysis.comparison.compare import Row
from scalecard.report import toc
from scalecard.report.comparison import sentences
from scalecard.report.table import Cell, Table

HEAD = ("verdict", "change of time", "95 % interval", "A", "B", "experiment", "case")


def cases(rows: Sequence[Row], label: str, *, doubts: bool = False) -> Table:
    """A row per case; `doubts` of their samples are shown below them."""
    head = [name[0].upper() + name[1:] for name in HEAD]
    return Table(label, head, [_cells(row, row.doubts if doubts else ()) for row in rows])


def _cells(row: Row, doubts: Sequence[str]) -> list[Cell]:
    """In the order of HEAD."""
    ratio, reason = row.ratio, sentences.reason(row)
    interval = ratio and ratio.interval
    return [
        Cell(row.verdict),
        Cell(formatting.change(ratio.value), ratio.value) if ratio else Cell(""),
        Cell(formatting.changes(interval.low, interval.high) if interval else reason or "too few samples"),
        Cell(formatting.seconds(row.old.median), row.old.median),
        Cell(formatting.seconds(row.new.median), row.new.median),
        Cell(toc.label(row.experiment)),
        Cell(f"{case(row)} ({reason})" if ratio and row.among else case(row), remarks=doubts),
    ]


def case(row: Row) -> str:
    """'enqueue time, mode single, size 4000': the metric, unless it is a plain time, and the case."""
    metric = [] if row.metric == "time" else [formatting.spaced(row.metric)]
    return ", ".join([*metric, ratio_text.case(row.case)])
