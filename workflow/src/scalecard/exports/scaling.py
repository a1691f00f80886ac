"""Strong and weak scaling of every workload as a table for a proposal or a paper, and as a figure."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from scalecard.analysis import by_key, formatting
from scalecard.analysis.platforms import fit
from scalecard.analysis.provenance import METHOD, provenance
from scalecard.analysis.strategy_choice import StrategyRun, ddp_runs, strategy_runs, workloads
from scalecard.exports import EXPERIMENTS
from scalecard.figures import layout
from scalecard.records.record import Result
from scalecard.records.statistics import Ratio
from scalecard.report import figure_files, table
from scalecard.report.answers import use

HEAD = ("Strategy", "Devices", "Nodes", "Batch", "Step (ms)", "95 % interval", "Per second", "Speed-up", "Efficiency")
LEFT = 1  # column of text; the others are numbers


def of_results(results: Sequence[Result]) -> dict[str, bytes]:
    """Table and figure by their files' names, if measured. InvalidResult names a file that lacks what they show."""
    found = [result for name in EXPERIMENTS for result in results if result.experiment == name]
    rows = [row for result in found for row in fit(result, partial(_complete, result))]
    return {f"scaling{suffix}": write(rows, found) for suffix, write in FORMATS.items()} if found else {}


def _complete(result: Result) -> list[StrategyRun]:
    rows = of_result(result)
    as_csv(rows, [result])  # raises what `fit` reports if a row lacks what the tables show
    return rows


def of_result(result: Result) -> list[StrategyRun]:
    """Every run of an experiment: one device, then strong and weak scaling by strategy and devices."""
    if result.experiment == "ddp":
        return sorted(map(_named_apart, ddp_runs(result)), key=_order)
    return [row for name in workloads(result) for row in sorted(strategy_runs(result, name), key=_order)]


def _named_apart(run: StrategyRun) -> StrategyRun:
    """A model of that name may be another one in `strategies`."""
    workload = f"{run.step.case.get('workload', 'every model')} (ddp)"
    return replace(run, step=replace(run.step, case={**run.step.case, "workload": workload}))


def _order(row: StrategyRun) -> tuple[str, bool, str, str, int, int]:
    return (row.workload, row.devices > 1, row.scaling, row.strategy, row.devices, row.nodes)


def as_csv(rows: Sequence[StrategyRun], results: Sequence[Result]) -> bytes:
    """Every case, also those that were not measured, with the reason; numbers in ms, per second, and as shares."""
    return table.as_csv([_values(row) for row in rows], [METHOD, provenance(results)]).encode()


def _values(row: StrategyRun) -> dict[str, object]:
    step, fits = row.step, row.fits
    return {
        "workload": row.workload,
        "precision": row.precision,
        "strategy": row.strategy,
        "scaling": row.scaling if row.devices > 1 else "",
        "devices": row.devices,
        "nodes": row.nodes,
        "batch_size": step.case.get("batch_size"),
        **_bounds("step_ms", formatting.scaled(Ratio(step.median, step.interval), 1e3) if fits else None),
        "unit": step.case.get("unit"),
        "per_second": row.rate if fits else None,
        **_bounds("speed_up", row.gain),
        **_bounds("efficiency", row.efficiency),
        "num_samples": step.num_samples,
        "status": row.status,
        "note": step.why,
    }


def _bounds(name: str, ratio: Ratio | None) -> dict[str, float | None]:
    low, high = (ratio.interval.low, ratio.interval.high) if ratio and ratio.interval else (None, None)
    return {name: ratio.value if ratio else None, f"{name}_low": low, f"{name}_high": high}


def as_markdown(rows: Sequence[StrategyRun], results: Sequence[Result]) -> bytes:
    """A table per workload and scaling, under headings."""
    parts = ["# Scaling\n"]
    for title, own in _tables(rows):
        parts += [f"## {table.markdown(title)}\n", table.as_markdown(HEAD, own, left=LEFT)]
    parts += [f"{table.markdown(note)}\n" for note in (*_absent(rows), METHOD, provenance(results))]
    return "\n".join(parts).encode()


def as_latex(rows: Sequence[StrategyRun], results: Sequence[Result]) -> bytes:
    """A table per workload and scaling, each with the method and where the numbers are from."""
    parts = ["% \\usepackage[T1]{fontenc} \\usepackage{booktabs}\n"]
    for title, own in _tables(rows):
        caption = f"{title}. {METHOD} {provenance(results)}"
        parts.append(table.as_latex(HEAD, own, left=LEFT, caption=caption, label=f"scaling {title}"))
    parts += [f"% {table.one_line(note)}\n" for note in _absent(rows)]
    return "\n".join(parts).encode()


def as_pdf(rows: Sequence[StrategyRun], results: Sequence[Result]) -> bytes:
    """The rates by devices, with where the numbers are from below them."""
    drawn, origin = use.rates([row for row in rows if row.fits], results[0]), provenance(results)
    layout.finish(drawn, textwrap.wrap(origin, 110))  # characters fit below the figure
    return figure_files.picture(drawn, ".pdf", "Strong and weak scaling", [origin])


def _tables(rows: Sequence[StrategyRun]) -> Iterator[tuple[str, list[list[str]]]]:
    """The title and the cells of strong and weak scaling of each workload, each with one device in front."""
    timed = [row for row in rows if row.fits]
    for name, own in groupby(timed, key=lambda row: f"{row.workload} in {row.precision}"):
        of_workload = list(own)
        for scaling in dict.fromkeys(row.scaling for row in of_workload if row.devices > 1) or ("",):
            title = f"{scaling.capitalize()} scaling of {name}" if scaling else f"{name} on one device"
            yield title, [_texts(row) for row in of_workload if row.devices == 1 or row.scaling == scaling]


def _texts(row: StrategyRun) -> list[str]:
    step = row.step
    return [
        row.strategy,
        str(row.devices),
        str(row.nodes),
        f"{row.batch:g}",
        f"{1e3 * step.median:.4g}",
        f"{1e3 * step.interval.low:.4g} to {1e3 * step.interval.high:.4g}" if step.interval else "too few samples",
        f"{formatting.count(row.rate)} {row.unit}",
        f"{row.gain.value:.2f}" if row.gain else "",
        formatting.percent(row.efficiency.value) if row.efficiency else "",
    ]


def _absent(rows: Sequence[StrategyRun]) -> list[str]:
    """Name the runs without times, by the reason."""
    absent = by_key(
        (f"{row.status} ({row.step.why})", f"{row.workload} by {row.strategy} on {row.devices}")
        for row in rows
        if not row.fits
    )
    return [f"Not measured: {', '.join(dict.fromkeys(what))}: {reason}." for reason, what in absent.items()]


FORMATS: dict[str, Callable[[Sequence[StrategyRun], Sequence[Result]], bytes]] = {
    ".csv": as_csv,
    ".md": as_markdown,
    ".tex": as_latex,
    ".pdf": as_pdf,
}
