"""The report in a few lines of Markdown, to paste into a ticket: every sentence is one that the report has too."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from scalecard.analysis import formatting, platforms
from scalecard.analysis.platforms import computed, fit
from scalecard.analysis.provenance import commits, shortened, trust
from scalecard.analysis.strategy_choice import StrategyRun
from scalecard.exports import EXPERIMENTS, scaling
from scalecard.hardware.machine import from_facts
from scalecard.records.record import Result
from scalecard.report.answers import use
from scalecard.report.sections import health
from scalecard.report.table import markdown

TRIAL = (
    "**Trial run on CPU devices, no measurement of a GPU.** CPU workers and CPU ranks stood in for devices, at a"
    " smaller scale."
)
COMMAND = re.compile(r"\\`(.+?)\\`")  # in escaped Markdown
ESCAPE = re.compile(r"\\(.)")


def summary(results: Sequence[Result]) -> str:
    """One platform's results, in any order, as Markdown. InvalidResult names a file that lacks what is said of it."""
    machine = from_facts(results[0].environment["machine"]).describe()
    lines = [f"# ScaleCard: {markdown(machine)}", ""]
    if any(result.emulated for result in results):
        lines += [TRIAL, ""]
    lines += [f"- {markdown(name)}: {markdown(value)}" for name, value in _facts(results).items()]
    parts = {
        "Health": _each(results, ["health"], _health),
        "Scaling": _each(results, EXPERIMENTS, _scaling),
        "What to use": computed(results[0].platform, "its results cannot answer `use`", partial(_use, results)),
        "Trust": trust(results),
    }
    for title, said in parts.items():
        lines += ["", f"## {title}", "", *(f"- {_markdown(text)}" for text in said or ["Not measured."])]
    return "\n".join(lines) + "\n"


def _markdown(text: str) -> str:
    """The sentence as it stands, its commands as code."""
    return COMMAND.sub(lambda found: "`" + ESCAPE.sub(r"\1", found[1]) + "`", markdown(text))


def _facts(results: Sequence[Result]) -> dict[str, str]:
    environment = results[0].environment
    image = environment["container"]
    facts = {
        "Measured": f"{formatting.minute(max(result.finished for result in results))} UTC",
        "Platform": f"{results[0].platform}, fingerprint {environment['fingerprint']}",
        "Driver": environment["machine"]["driver"],
        "PyTorch": environment["torch"],
        "CUDA": environment["cuda"],
        "NCCL": environment["nccl"],
        "Container": f"{environment['container_engine']}, {shortened(image)}" if image else "none",
        "ScaleCard": f"commit {', '.join(commits(results))}",
    }
    return {name: str(value) for name, value in facts.items() if value}


def _each(results: Sequence[Result], names: Sequence[str], say: Callable[[Result], list[str]]) -> list[str]:
    chosen = [result for name in names for result in results if result.experiment == name]
    return [text for result in chosen for text in fit(result, partial(say, result))]


def _health(result: Result) -> list[str]:
    """A line per part of the machine, as its tile has it, then the alerts."""
    return [*map(_tile, health.tiles(result)), *(finding.text for finding in health.findings(result))]


def _tile(tile: health.Tile) -> str:
    share = f", {formatting.percent(tile.share)} of the limit" if tile.share else ""
    number = f"{tile.number}{share} ({tile.what})" if tile.number else "no rate was measured"
    return f"{tile.symbol} {tile.part}: {tile.verdict}; {number}; {tile.detail}"


def _scaling(result: Result) -> list[str]:
    """The fastest strategy on the most devices, of each workload and scaling."""
    several = [row for row in scaling.of_result(result) if row.devices > 1 and row.fits]
    per_scaling = groupby(several, key=lambda row: (row.workload, row.scaling))
    return [_line(max(rows, key=lambda row: (row.devices, row.rate))) for _, rows in per_scaling]


def _line(row: StrategyRun) -> str:
    said = f"{formatting.count(row.rate)} {row.unit}/s"  # what one device does may not have been timed
    if row.gain and row.efficiency:
        share = formatting.percent(row.efficiency.value)
        said = f"{formatting.factor(row.gain)} the rate of one device, {share} efficient"
    return f"{row.workload}, {row.scaling} scaling: {row.where}: {said}."


def _use(results: Sequence[Result]) -> list[str]:
    if any(result.emulated for result in results):
        return ["No advice is given: CPU workers stand in for devices."]
    return [finding.text for finding in use.findings(platforms.current(results))]
