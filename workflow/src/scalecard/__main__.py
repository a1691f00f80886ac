"""The command line: parses and dispatches, nothing else. Bad input gives one error on stderr and exit status 2."""

import argparse
import io
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from scalecard.hardware import gpu_problems, host, machine, memory


def main() -> int:
    """Run one command and return the exit status."""
    args = _parser().parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: not every locale has a µ
    try:
        return globals()[f"_{args.command}"](args) or 0
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except (ImportError, MemoryError) as error:
        if not memory.ran_out(error):
            raise
        print(f"{args.command}: {memory.sentence(error)}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scalecard", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    probe = commands.add_parser("probe", help="describe this machine as JSON")
    probe.add_argument("--output", type=Path, help="write machine.json for a cluster whose nodes are all like this one")
    commands.add_parser(
        "check",
        help="check the blocks of a configuration; stdin: JSON of scale to experiment to merged block, a string",
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
    summary.add_argument("--failed", type=Path, nargs="*", help="the workflow failed: show the ends of these logs")
    _add_compare(commands.add_parser("compare", help="report which cases are faster or slower in B than in A"))
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
    plot = commands.add_parser("plot", help="draw one experiment's figure, as SVG and PNG")
    plot.add_argument("name")
    plot.add_argument("--output", type=Path, nargs="+", required=True, help="files to write, .svg or .png")
    report = commands.add_parser("report", help="write the HTML report")
    report.add_argument("--figures", type=Path, required=True, help="folder of the SVG files")
    report.add_argument("--output", type=Path, required=True)
    for command in (plot, report):
        command.add_argument("--results", type=Path, nargs="+", required=True, help="the current platform's first")
        command.add_argument("--show", type=json.loads, help="JSON: the platforms to draw beside it, at most five")


def _add_compare(compare: argparse.ArgumentParser) -> None:
    for name in ("a", "b"):
        compare.add_argument(name, help="a platform, a folder of results, or a git revision[:platform]")
    compare.add_argument("--margin", type=float, default=0.02, help="largest difference to ignore (default 0.02)")
    compare.add_argument("--json", action="store_true", help="print JSON instead of a table")
    compare.add_argument("--html", type=Path, help="also write an HTML page")
    compare.add_argument("--fail-on", choices=["slower"], help="exit with status 1 if any case is slower")


def _probe(args: argparse.Namespace) -> None:
    found = machine.probe()
    if args.output:
        gpu_problems.refuse()
        from scalecard.jobs.machine_file import write_machine

        write_machine(args.output, found.any_node())
    print(json.dumps({**asdict(found), "slug": found.slug, "fingerprint": found.fingerprint}, indent=1))


def _check(args: argparse.Namespace) -> None:
    from scalecard import experiments

    problems = experiments.problems(json.load(sys.stdin))
    if problems:
        raise ValueError("\n".join(problems))


def _container(args: argparse.Namespace) -> None:
    from scalecard.jobs.containers import choose, marker

    marker.write(args.output, choose.choose(args.settings, shared=args.shared))


def _fetch(args: argparse.Namespace) -> None:
    from scalecard.training import datasets

    datasets.load("fashion-mnist", args.data_dir)


def _run(args: argparse.Namespace) -> None:
    from scalecard import progress
    from scalecard.jobs.machine_file import read_machine
    from scalecard.jobs.plan import place
    from scalecard.measuring.own_time import NotSynchronised
    from scalecard.measuring.proof import ProofFailed
    from scalecard.run import run

    expected = read_machine(args.machine)
    gpu_problems.refuse()
    found = machine.probe().as_specific_as(expected)
    if found.fingerprint != expected.fingerprint:
        raise ValueError(
            f"{args.machine}: describes {expected.describe()} ({expected.fingerprint}), but this machine (host, hashed:"
            f" {host.hashed_name()}) is {found.describe()} ({found.fingerprint}):"
            f" {machine.differences(expected, found)}; give it its own platform label"
        )
    progress.set_place(place(args.name))
    try:
        run(
            args.name,
            args.spec,
            found,
            args.output.parent.name,
            args.output,
            strict=args.strict,
            seconds=args.seconds,
            usual=args.usual,
        )
    except (NotSynchronised, ProofFailed) as error:
        raise ValueError(f"{args.name}: {error}") from error


def _plot(args: argparse.Namespace) -> None:
    from scalecard.report import figures

    for each in figures.draw(args.name, args.results, args.output, args.show):
        print(each)


def _report(args: argparse.Namespace) -> None:
    from scalecard.report import render

    render.write(args.results, args.figures, args.output, args.show)


def _summary(args: argparse.Namespace) -> None:
    from scalecard.jobs import failed_cases, plan
    from scalecard.report import summary

    run = plan.take()
    seconds = time.time() - run.started if run else 0.0
    if args.failed is None:
        written = any(job.rule == "report" for job in run.jobs) if run else args.report.exists()
        report, expected = args.report if written else None, run.expected if run else {}
        results = summary.readable(args.results)
        print(summary.success(results, report, seconds, expected))
        if lost := failed_cases.closing(results):
            print(lost)
    else:
        print(summary.failure(args.failed, seconds))


def _compare(args: argparse.Namespace) -> int:
    from scalecard.records.atomic import write_atomically
    from scalecard.report.comparison import compare, find_results, views

    if not 0 <= args.margin < 1:
        raise ValueError(f"--margin {args.margin:g}: must be at least 0 and below 1, e.g. 0.02 for 2 %")
    old, new = find_results.find(args.a), find_results.find(args.b)
    found = compare.compare(old, new, margin=args.margin, names=(args.a, args.b))
    print(views.as_json(found) if args.json else views.as_text(found))
    if args.html:
        write_atomically(args.html, views.as_html(found))
    return int(args.fail_on == "slower" and found.count("slower") > 0)


if __name__ == "__main__":
    sys.exit(main())
