"""The command line: commands, their arguments, defaults and help."""

import argparse
import json
import os
from pathlib import Path

RESULTS = "a platform, a folder of results, a git revision[:platform]"


def parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(prog="scalecard", description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    probe = commands.add_parser("probe", help="describe this machine as JSON")
    probe.add_argument("--output", type=Path, help="write machine.json for a cluster whose nodes are all like this one")
    commands.add_parser(
        "check", help="check blocks of a configuration; stdin: JSON of scale to experiment to merged block, a string"
    )
    container = commands.add_parser("container", help="build or find the image, and write its marker")
    container.add_argument(
        "settings",
        nargs="?",
        type=json.loads,
        default=os.environ.get("SCALECARD_CONTAINER", ""),  # lets the workflow keep passwords off the command line
        help="JSON: the container block of config.yaml",
    )
    container.add_argument("--shared", action="store_true", help="for other nodes: auto considers only Apptainer")
    container.add_argument("--output", type=Path, required=True, help="the marker file")
    fetch = commands.add_parser("fetch", help="download and verify the training images")
    fetch.add_argument("--data-dir", type=Path, required=True)
    _add_run(commands.add_parser("run", help="measure one experiment"))
    _add_report(commands)
    summary = commands.add_parser("summary", help="print the closing summary of a workflow run")
    summary.add_argument("--results", type=Path, nargs="*", default=[], help="result files of the current platform")
    summary.add_argument("--report", type=Path, default=Path("results/report.html"))
    summary.add_argument("--left-out", type=Path, help="JSON: what the report leaves out of this platform")
    summary.add_argument("--failed", type=Path, nargs="*", help="the workflow failed: show the ends of these logs")
    _add_compare(commands.add_parser("compare", help="report which cases are faster or slower in B than in A"))
    _add_health(commands.add_parser("health", help="say which part of a machine is not as it should be"))
    _add_nights(commands)
    reruns = commands.add_parser("reruns", help="say what an edit of these files of the project runs again")
    reruns.add_argument("files", type=Path, nargs="+", metavar="FILE")
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("name")
    run.add_argument("--spec", required=True, help="the merged block, as a JSON string")
    run.add_argument("--machine", type=Path, required=True, help="machine.json of the platform")
    run.add_argument("--output", type=Path, required=True)
    run.add_argument(
        "--strict",
        action="store_true",
        default=os.environ.get("SCALECARD_STRICT") == "1",  # lets the workflow set it without remeasuring
        help="refuse to measure if something else is using the machine",
    )
    run.add_argument("--seconds", type=int, default=0, help="about how long it may take; 0: as long as it needs")
    run.add_argument("--usual", type=int, default=0, help="the seconds that it may take without such a limit")


def _add_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    plot = commands.add_parser("plot", help="draw the figure of an experiment or an answer")
    plot.add_argument("name")
    plot.add_argument(
        "--output", type=Path, nargs="+", required=True, help="files to write: .svg, .png, .pdf, .csv or .html"
    )
    export = commands.add_parser("export", help="write a platform's results as tables, a summary, a citation, a crate")
    which = export.add_mutually_exclusive_group()
    which.add_argument("platform", nargs="?", help="a platform or its folder (default: this machine's)")
    which.add_argument("--results", type=Path, nargs="+", help="only these result files of one platform")
    export.add_argument("--output", type=Path, help="the folder to write (default: results/exports/<platform>)")
    report = commands.add_parser("report", help="write the HTML report")
    report.add_argument("--figures", type=Path, required=True, help="folder of the figures' panels")
    report.add_argument("--output", type=Path, required=True)
    for command in (plot, report):
        command.add_argument("--results", type=Path, nargs="+", required=True, help="the current platform's first")
        command.add_argument("--show", type=json.loads, help="JSON: the platforms to draw beside it, at most three")
        command.add_argument("--answers", type=json.loads, default={}, help="JSON: the settings of answers, by name")
    report.add_argument("--history", type=Path, nargs="*", default=[], help="the indices of kept nights")
    report.add_argument("--exports", type=Path, nargs="*", default=[], help="files to link, relative to the report")
    report.add_argument("--left-out", type=Path, help="also write what of this platform is left out, as JSON")


def _add_compare(compare: argparse.ArgumentParser) -> None:
    for name in ("a", "b"):
        compare.add_argument(name, help=f"{RESULTS}, [platform]@last (the last night kept) or @now")
    _add_comparison(compare)
    compare.add_argument("--html", type=Path, help="also write an HTML page")
    compare.add_argument("--junit", type=Path, help="also write JUnit's XML; a slower case fails")


def _add_comparison(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--only", action="append", default=[], metavar="EXPERIMENT", help="only this one; may be repeated"
    )
    command.add_argument("--margin", type=float, default=0.02, help="largest difference to ignore (default 0.02)")
    command.add_argument("--json", action="store_true", help="print JSON instead of lines")
    command.add_argument("--fail-on", choices=["slower"], help="exit with status 1 if anything is slower")


def _add_health(health: argparse.ArgumentParser) -> None:
    health.add_argument("results", nargs="?", help=f"{RESULTS} (default: this machine's platform)")
    health.add_argument(
        "--fail-on",
        choices=["errors", "low", "odd"],
        help="exit with status 1 for alerts of this kind; errors: counted errors; low: also what is below its limit or"
        " slowed down; odd: also what is slower than its peers",
    )
    health.add_argument("--max-age", type=float, metavar="HOURS", help="refuse a result that is older (status 2)")
    health.add_argument("--json", action="store_true", help="print JSON instead of lines")
    health.add_argument("--junit", type=Path, help="also write JUnit's XML, a test case for each part")


def _add_nights(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    keep = commands.add_parser("keep", help="keep the present results of a platform as a night of its history")
    trend = commands.add_parser("trend", help="print how numbers went from night to night, and what became slower")
    for command in (keep, trend):
        command.add_argument("platform", nargs="?", help="a platform or its folder (default: this machine's)")
    _add_comparison(trend)
    trend.add_argument("--nights", type=int, default=10, help="how many nights to print of each number; 0: all")
    trend.add_argument(
        "--figure",
        type=Path,
        nargs="+",
        default=[],
        help="also draw it: files to write: .svg, .png, .pdf, .csv or .html",
    )
