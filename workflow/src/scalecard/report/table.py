"""The tables of the page, all of one shape: a head, and rows of cells that can be sorted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Cell:
    """A text, the number to sort it by if it stands for one, and remarks to show below it."""

    text: str
    sort: float | None = None
    remarks: Sequence[str] = ()


EMPTY = Cell("")


@dataclass(frozen=True)
class Table:
    """Each row has a cell for each name in the head.

    A `trial` shows a method on numbers that say nothing about real devices: the page greys it.
    """

    label: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    trial: bool = False

    @classmethod
    def of(cls, label: str, rows: Sequence[Mapping[str, str | Cell]], note: str = "") -> "Table":
        """The table of rows by column; what a row lacks is empty, and text alone is sorted as text."""
        head = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[row.get(name, EMPTY) for name in head] for row in rows]
        return cls(label, head, [[Cell(one) if isinstance(one, str) else one for one in row] for row in cells], note)

    @property
    def texts(self) -> list[list[str]]:
        """The rows without what they are sorted by."""
        return [[cell.text for cell in row] for row in self.rows]

    def filled(self) -> "Table":
        """Leave out the columns that are empty in every row: a CPU has no peak, say."""
        shown = [place for place in range(len(self.head)) if any(row[place].text for row in self.rows)]
        rows = [[row[place] for place in shown] for row in self.rows]
        return replace(self, head=[self.head[place] for place in shown], rows=rows)

    def explained(self, meanings: Mapping[str, str]) -> "Table":
        """Say in the note what the columns mean that are shown."""
        said = [f"{name}: {meanings[name]}." for name in self.head if name in meanings]
        return replace(self, note=" ".join(said))
