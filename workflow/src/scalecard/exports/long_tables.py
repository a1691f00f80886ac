"""Results as two tidy tables: a row per case, with its median and interval, and a row per sample.

Both begin with the same columns: IDENTITY, the axes of all cases, and the unit of the value. SI units throughout.
"""

from collections.abc import Sequence

import pandas as pd

from scalecard.records.axes import Scalar
from scalecard.records.record import Result
from scalecard.records.statistics import larger
from scalecard.report import record_table, table

IDENTITY = ("platform", "fingerprint", "commit", "finished", "emulated", "experiment", "metric")
OF_CASE = ("value_unit", "value", "low", "high", "num_samples", "num_processes", "status", "reason", "note")
OF_SAMPLE = ("value_unit", "process", "sample", "rounds_id", "value")
Row = dict[str, Scalar]


def as_csv(results: Sequence[Result]) -> bytes:
    """A row per case and metric, also of those that were not measured, whose `reason` and `note` say why.

    `low` and `high` are the bounds of the 95 % interval, in the value's unit.
    """
    rows = _identities(results)
    for row, record in zip(rows, (record for result in results for record in result.records), strict=True):
        interval = larger(*record_table.intervals(record)) if record.samples else None
        row |= {
            "value_unit": record.unit,
            "value": record_table.number(record) if record.samples else None,
            "low": interval.low if interval else None,
            "high": interval.high if interval else None,
            "num_samples": record.num_samples,
            "num_processes": len(record.samples),
            "status": record.status,
            "reason": record.reason,
            "note": record.note,
        }
    return table.as_csv(rows, []).encode()


def as_parquet(results: Sequence[Result]) -> bytes:
    """A row per sample; `process` and `sample` count from 0, and samples of the same rounds have one `rounds_id`."""
    return samples(results).to_parquet(None, index=False, compression="zstd")


def samples(results: Sequence[Result]) -> pd.DataFrame:
    """The table that as_parquet() writes; every column has one type, also if cases lack the axis."""
    identities, records = _identities(results), [record for result in results for record in result.records]
    columns = list(identities[0]) if identities else list(IDENTITY)
    shared = pd.DataFrame({name: _typed([row[name] for row in identities]) for name in columns})
    own = pd.DataFrame(
        [
            (index, record.unit, process, place, timed[process].rounds_id if timed else None, value)
            for index, record in enumerate(records)
            for timed in [record.telemetry]
            for process, taken in enumerate(record.samples)
            for place, value in enumerate(taken)
        ],
        columns=["case", *OF_SAMPLE],
    )
    return pd.concat([shared.take(own.case.to_numpy()).reset_index(drop=True), own.drop(columns="case")], axis=1)


def _identities(results: Sequence[Result]) -> list[Row]:
    """The columns that identify each case; an axis that a case lacks is None."""
    axes = dict.fromkeys(axis for result in results for record in result.records for axis in record.case)
    taken = sorted(set(axes) & {*IDENTITY, *OF_CASE, *OF_SAMPLE})
    assert not taken, f"axes named like columns: {', '.join(taken)}"
    rows = list[Row]()
    for result in results:
        made = (result.platform, result.environment["fingerprint"], result.environment["commit"], result.finished)
        for record in result.records:
            identity = zip(IDENTITY, (*made, result.emulated, result.experiment, record.metric), strict=True)
            rows.append({**dict(identity), **dict.fromkeys(axes), **record.case})
    return rows


def _typed(values: Sequence[Scalar]) -> pd.Series:
    """A column of one type, with room for missing values."""
    kinds = {type(value) for value in values if value is not None}
    for kind, dtype in (({bool}, "boolean"), ({int}, "Int64"), ({int, float}, "Float64")):
        if kinds and kinds <= kind:
            return pd.Series(list(values), dtype=dtype)
    return pd.Series([None if value is None else str(value) for value in values], dtype="string")
