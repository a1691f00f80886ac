"""The commands of `scalecard` and their arguments: each reads its input, calls one room, and prints or writes.

Bad input gives one error on stderr and exit status 2.
"""

import argparse
import io
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import scalecard
from scalecard.analysis import MARGIN_OF_RUNS
from scalecard.hardware import host, machine, vendors

if TYPE_CHECKING:
    from scalecard.cli.output import Output

# What a host that only starts containers lacks: what measures, and what draws.
LOCKED = ("torch", "torchvision", "numpy", "pandas", "scipy", "matplotlib")
RESULTS = "a platform, a folder of results, a git revision[:platform]"


def main() -> int:
    """Run one command and return the exit status."""
    args = parser(scalecard.__doc__).parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: not every locale has a µ
    try:
        return globals()[f"_{args.command}"](args) or 0
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{args.command}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except (ImportError, MemoryError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name in LOCKED:
            print(f"{args.command}: {sys.executable} has no {error.name}; `make` installs it in .venv", file=sys.stderr)
            return 2
        if not host.is_out_of_memory(error):
            raise
        print(f"{args.command}: {host.too_little_memory(error)}", file=sys.stderr)
        return 2


def parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(prog="scalecard", description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    probe = commands.add_parser("probe", help="describe this machine as JSON")
    probe.add_argument("--output", type=Path, help="write machine.json for a cluster whose nodes are all like this one")
    check = commands.add_parser("check", help="check blocks of a configuration")
    check.add_argument("blocks", type=Path, help="JSON of scale to experiment to merged block, a string")
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
    compare = commands.add_parser("compare", help="report which cases are faster or slower in B than in A")
    _add_health(commands.add_parser("health", help="say which part of a machine is not as it should be"))
    keep = commands.add_parser("keep", help="keep the present results of a platform as a night of its history")
    trend = commands.add_parser("trend", help="print how numbers went from night to night, and what became slower")
    for command in (keep, trend):
        command.add_argument("platform", nargs="?", help="a platform or its folder (default: this machine's)")
    _add_comparisons(compare, trend)
    needs = commands.add_parser("needs", help="print what each experiment of config.yaml should take on GPUs, a table")
    needs.add_argument("--gpus", type=int, default=8, help="of one node (default %(default)s)")
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
    gallery = commands.add_parser("gallery", help="write one page of many platforms, a row each, with links to reports")
    gallery.add_argument("folders", nargs="+", type=Path, help="results folders, or folders of platforms")
    gallery.add_argument("--output", type=Path, default=Path("gallery.html"), help="the page (default: gallery.html)")
    report = commands.add_parser("report", help="write the HTML report")
    report.add_argument("--figures", type=Path, required=True, help="folder of the figures' panels")
    report.add_argument("--output", type=Path, required=True)
    for command in (plot, report):
        command.add_argument("--results", type=Path, nargs="+", required=True, help="the current platform's first")
        command.add_argument("--show", type=json.loads, help="JSON: the platforms to draw beside it, at most three")
        command.add_argument("--answers", type=json.loads, default={}, help="JSON: the settings of answers, by name")
    report.add_argument("--history", type=Path, nargs="*", default=[], help="the indices of kept nights")
    report.add_argument("--exports", type=Path, nargs="*", default=[], help="the exported files that the report offers")
    report.add_argument("--archive", type=Path, help="also write the report and the files beside it to one .zip")
    report.add_argument("--left-out", type=Path, help="also write what of this platform is left out, as JSON")


def _add_comparisons(compare: argparse.ArgumentParser, trend: argparse.ArgumentParser) -> None:
    for name in ("a", "b"):
        compare.add_argument(name, help=f"{RESULTS}, [platform]@last (the last night kept) or @now")
    for command in (compare, trend):
        command.add_argument(
            "--only", action="append", default=[], metavar="EXPERIMENT", help="only this one; may be repeated"
        )
        command.add_argument(
            "--margin", type=float, default=MARGIN_OF_RUNS, help="largest difference to ignore (default %(default)s)"
        )
        command.add_argument("--json", action="store_true", help="print JSON instead of lines")
        command.add_argument("--fail-on", choices=["slower"], help="exit with status 1 if anything is slower")
    compare.add_argument("--html", type=Path, help="also write an HTML page")
    compare.add_argument("--junit", type=Path, help="also write JUnit's XML; a slower case fails")
    trend.add_argument("--nights", type=int, default=10, help="how many nights to print of each number; 0: all")
    trend.add_argument(
        "--figure",
        type=Path,
        nargs="+",
        default=[],
        help="also draw it: files to write: .svg, .png, .pdf, .csv or .html",
    )


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


def _probe(args: argparse.Namespace) -> None:
    found = machine.probe()
    if args.output:
        vendors.refuse()
        from scalecard.jobs.inputs import write_machine

        write_machine(args.output, found.any_node())
    print(json.dumps({**asdict(found), "slug": found.slug, "fingerprint": found.fingerprint}, indent=1))


def _check(args: argparse.Namespace) -> None:
    from scalecard import experiments

    problems = experiments.problems(json.loads(args.blocks.read_text()))
    if problems:
        raise ValueError("\n".join(problems))


def _container(args: argparse.Namespace) -> None:
    from scalecard.jobs import config
    from scalecard.jobs.containers import build, launch

    made = build.choose(args.settings, shared=args.shared)
    if not args.shared:
        config.check_in_image(made)
    launch.write_marker(args.output, made)


def _fetch(args: argparse.Namespace) -> None:
    from scalecard.workloads import datasets

    datasets.load("fashion-mnist", args.data_dir)


def _run(args: argparse.Namespace) -> None:
    from scalecard import progress
    from scalecard.hardware import fresh_process, isolation
    from scalecard.jobs.inputs import digest_of_experiment, imported_by_ranks, read_machine
    from scalecard.jobs.plan import place, seconds_allowed

    expected = read_machine(args.machine)
    vendors.refuse()
    found = machine.probe().as_specific_as(expected)
    if found.fingerprint != expected.fingerprint:
        raise ValueError(
            f"{args.machine}: describes {expected.describe()} ({expected.fingerprint}), but this machine (host, hashed:"
            f" {host.hashed_name()}) is {found.describe()} ({found.fingerprint}):"
            f" {machine.differences(expected, found)}; give it its own platform label"
        )
    progress.set_place(place(args.name))
    modules, preload = ["scalecard.run", f"scalecard.experiments.{args.name}"], imported_by_ranks(args.name)
    with isolation.own_folder(), fresh_process.early_start(modules, preload=preload):
        from scalecard.run import run

        run(
            args.name,
            args.spec,
            found,
            args.output.parent.name,
            args.output,
            strict=args.strict,
            seconds=seconds_allowed(args.name, args.seconds, args.output.parent),
            usual=args.usual,
            code=digest_of_experiment(args.name),
        )


def _plot(args: argparse.Namespace) -> None:
    from scalecard.report import figure_files

    for each in figure_files.draw(args.name, args.results, args.output, args.show, args.answers):
        print(each)


def _export(args: argparse.Namespace) -> None:
    from scalecard.cli.locate_results import result_files
    from scalecard.exports.write_exports import export

    folder, left_out = export(args.results or result_files(_platform(args)), args.output)
    for each in left_out:
        print(each, file=sys.stderr)
    print(f"exported to {folder}")


def _report(args: argparse.Namespace) -> None:
    from scalecard.records.atomic import write_atomically
    from scalecard.report import render

    left_out = render.write(
        args.results, args.figures, args.output, args.show, args.history, args.exports, args.answers, args.archive
    )
    for each in left_out:
        print(each)
    if args.left_out:
        write_atomically(args.left_out, json.dumps([str(each) for each in left_out if each.ours], indent=1) + "\n")


def _summary(args: argparse.Namespace) -> int:
    from scalecard.jobs import plan

    said, failures = plan.closing_summary(args.results, args.report, args.failed, args.left_out)
    print(said)
    return int(failures)


def _compare(args: argparse.Namespace) -> int:
    from scalecard.analysis import compare
    from scalecard.cli import compare_output, locate_results
    from scalecard.records.atomic import write_atomically

    _check_margin(args.margin)
    old, new = compare.only(locate_results.find(args.a), locate_results.find(args.b), args.only)
    found = compare.compare(old, new, margin=args.margin, names=(args.a, args.b))
    _say(compare_output.output(found), args)
    if args.html:
        write_atomically(args.html, compare_output.page(found))
    return int(args.fail_on == "slower" and found.count("slower") > 0)


def _check_margin(margin: float) -> None:
    if not 0 <= margin < 1:
        raise ValueError(f"--margin {margin:g}: must be at least 0 and below 1, e.g. 0.02 for 2 %")


def _health(args: argparse.Namespace) -> int:
    from scalecard.cli import health_gate, locate_results

    name = args.results or str(locate_results.this_platform())
    found = health_gate.check(locate_results.find(name), name, fail_on=args.fail_on, max_age=args.max_age)
    _say(health_gate.output(found), args)
    return int(bool(found.failing))


def _keep(args: argparse.Namespace) -> None:
    from scalecard.report.kept_nights import keep

    folder = _platform(args)
    found = keep(folder)
    for each in found.left_out:
        print(each)
    told = f"kept {', '.join(found.experiments)} in {found.folder}" if found.folder else "nothing new to keep"
    print(f"{folder.name}: {told}")


def _trend(args: argparse.Namespace) -> int:
    from scalecard.cli import compare_output
    from scalecard.report import trend

    _check_margin(args.margin)
    if args.nights < 0:
        raise ValueError(f"--nights {args.nights}: must be at least 0, which prints all")
    found = trend.of_platform(_platform(args), only=args.only, margin=args.margin)
    _say(compare_output.trend_output(found, nights=args.nights), args)
    if args.figure:
        from scalecard.report import figure_files, trend_figure

        drawn = trend_figure.plot(found)
        for path in args.figure:
            figure_files.save(drawn, path)
    return int(args.fail_on == "slower" and bool(found.slower))


def _gallery(args: argparse.Namespace) -> None:
    from scalecard.cli.locate_results import every_platform
    from scalecard.report import gallery

    for each in gallery.write(every_platform(args.folders), args.output):
        print(each, file=sys.stderr)
    print(args.output)


def _needs(args: argparse.Namespace) -> None:
    from scalecard.jobs import config, config_file, needs

    if args.gpus < 1:
        raise ValueError(f"--gpus {args.gpus}: must be at least 1")
    values = config_file.parse(Path("config.yaml").read_text(), "config.yaml")
    print(needs.table({name: config.merged_block(values, name, "full") for name in values["experiments"]}, args.gpus))


def _reruns(args: argparse.Namespace) -> None:
    from scalecard.jobs import inputs

    for each in inputs.reruns(args.files):
        print(each)


def _say(output: "Output", args: argparse.Namespace) -> None:
    """Print lines or JSON, and write JUnit's XML where a command has it and it was asked for."""
    from scalecard.records.atomic import write_atomically

    print(output.json if args.json else output.text)
    if getattr(args, "junit", None):
        write_atomically(args.junit, output.junit)


def _platform(args: argparse.Namespace) -> Path:
    """The folder that an argument names, or this machine's."""
    from scalecard.cli import locate_results

    return locate_results.platform_folder(args.platform) if args.platform else locate_results.this_platform()
