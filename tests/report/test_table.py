"""The one shape of tables: rows by column, what they lack, and which columns are left out and explained."""

from scalecard.report.table import EMPTY, Cell, Table


def test_a_table_of_rows_has_every_column_that_any_row_has() -> None:
    made = Table.of("Label", [{"Name": "a", "Time": Cell("1 s", 1.0)}, {"Name": "b", "Note": "n"}], "A note.")
    assert (made.label, made.head, made.note, made.trial) == ("Label", ["Name", "Time", "Note"], "A note.", False)
    assert made.rows == [[Cell("a"), Cell("1 s", 1.0), EMPTY], [Cell("b"), EMPTY, Cell("n")]]
    assert made.texts == [["a", "1 s", ""], ["b", "", "n"]]


def test_columns_that_nothing_fills_are_left_out_and_not_explained() -> None:
    rows = [{"Name": "a", "Peak": EMPTY, "Gain": Cell("", 1.0)}, {"Name": "b", "Peak": "", "Gain": Cell("2x", 2.0)}]
    made = Table.of("Label", rows).filled().explained({"Gain": "over one device", "Peak": "of the vendor"})
    assert made.head == ["Name", "Gain"]
    assert made.texts == [["a", ""], ["b", "2x"]]
    assert made.note == "Gain: over one device."
