"""The commands of `scalecard`: each reads its input, calls one room, and prints or writes what comes of it.

Bad input gives one error on stderr and exit status 2.
"""

import argparse
import io
import json
import sys
from dataclasses import asdict
from pathlib import Path

import scalecard
from scalecard.cli import arguments
from scalecard.cli.output import Output
from scalecard.hardware import host, machine, vendors


def main() -> int:
    """Run one command and return the exit status."""
    args = arguments.parser(scalecard.__doc__).parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: not every locale has a µ
    try:
        return globals()[f"_{args.command}"](args) or 0
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except (ImportError, MemoryError) as error:
        if not host.is_out_of_memory(error):
            raise
        print(f"{args.command}: {host.too_little_memory(error)}", file=sys.stderr)
        return 2


def _probe(args: argparse.Namespace) -> None:
    found = machine.probe()
    if args.output:
        vendors.refuse()
        from scalecard.jobs.inputs import write_machine

        write_machine(args.output, found.any_node())
    print(json.dumps({**asdict(found), "slug": found.slug, "fingerprint": found.fingerprint}, indent=1))


def _check(args: argparse.Namespace) -> None:
    from scalecard import experiments

    problems = experiments.problems(json.load(sys.stdin))
    if problems:
        raise ValueError("\n".join(problems))


def _container(args: argparse.Namespace) -> None:
    from scalecard.jobs.containers import build, engines

    engines.write_marker(args.output, build.choose(args.settings, shared=args.shared))


def _fetch(args: argparse.Namespace) -> None:
    from scalecard.workloads import datasets

    datasets.load("fashion-mnist", args.data_dir)


def _run(args: argparse.Namespace) -> None:
    from scalecard import progress
    from scalecard.jobs.inputs import read_machine
    from scalecard.jobs.plan import place
    from scalecard.run import run

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
        args.results, args.figures, args.output, args.show, args.history, args.exports, args.answers
    )
    for each in left_out:
        print(each)
    if args.left_out:
        write_atomically(args.left_out, json.dumps([str(each) for each in left_out if each.ours], indent=1) + "\n")


def _summary(args: argparse.Namespace) -> int:
    from scalecard.jobs import end_summary

    said, failures = end_summary.text(args.results, args.report, args.failed, args.left_out)
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
    from scalecard.report.history.kept_nights import keep

    folder = _platform(args)
    found = keep(folder)
    for each in found.left_out:
        print(each)
    told = f"kept {', '.join(found.experiments)} in {found.folder}" if found.folder else "nothing new to keep"
    print(f"{folder.name}: {told}")


def _trend(args: argparse.Namespace) -> int:
    from scalecard.cli import compare_output
    from scalecard.report.history import trend

    _check_margin(args.margin)
    if args.nights < 0:
        raise ValueError(f"--nights {args.nights}: must be at least 0, which prints all")
    found = trend.of_platform(_platform(args), only=args.only, margin=args.margin)
    _say(compare_output.trend_output(found, nights=args.nights), args)
    if args.figure:
        from scalecard.report import figure_files
        from scalecard.report.history import figure

        drawn = figure.plot(found)
        for path in args.figure:
            figure_files.save(drawn, path)
    return int(args.fail_on == "slower" and bool(found.slower))


def _reruns(args: argparse.Namespace) -> None:
    from scalecard.jobs import inputs

    for each in inputs.reruns(args.files):
        print(each)


def _say(output: Output, args: argparse.Namespace) -> None:
    """Print lines or JSON, and write JUnit's XML where a command has it and it was asked for."""
    from scalecard.records.atomic import write_atomically

    print(output.json if args.json else output.text)
    if getattr(args, "junit", None):
        write_atomically(args.junit, output.junit)


def _platform(args: argparse.Namespace) -> Path:
    """The folder that an argument names, or this machine's."""
    from scalecard.cli import locate_results

    return locate_results.platform_folder(args.platform) if args.platform else locate_results.this_platform()
