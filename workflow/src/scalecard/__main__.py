"""The command line: probe, check, run, plot, report, compare. It parses, calls and writes, nothing else."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from scalecard import machine, schema


def main() -> int:
    """Run one command; bad input is one line on stderr and exit status 2."""
    parser = argparse.ArgumentParser(prog="scalecard", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("probe", help="print what this machine is, as JSON")
    check = commands.add_parser("check", help="check the experiments' blocks of a configuration")
    check.add_argument("blocks", type=json.loads, help="JSON: experiment name to its merged block")
    run = commands.add_parser("run", help="measure one experiment")
    run.add_argument("name")
    run.add_argument("--spec", type=json.loads, required=True, help="the merged block as JSON")
    run.add_argument("--machine", type=Path, required=True, help="machine.json of the platform")
    run.add_argument("--output", type=Path, required=True)
    run.add_argument(
        "--strict",
        action="store_true",
        default=os.environ.get("SCALECARD_STRICT") == "1",  # so that the workflow can set it without remeasuring
        help="refuse where something else uses the machine",
    )
    plot = commands.add_parser("plot", help="draw one experiment's figure, as SVG and PNG")
    plot.add_argument("name")
    plot.add_argument("--results", type=Path, nargs="+", required=True, help="the current platform's first")
    plot.add_argument("--output", type=Path, nargs="+", required=True, help="files to write, .svg or .png")
    report = commands.add_parser("report", help="write the HTML report")
    report.add_argument("--results", type=Path, nargs="+", required=True, help="the current platform's first")
    report.add_argument("--figures", type=Path, required=True, help="folder of the SVG files")
    report.add_argument("--output", type=Path, required=True)
    compare = commands.add_parser("compare", help="say which cases of B are faster or slower than those of A")
    for name in ("a", "b"):
        compare.add_argument(name, help="a platform, a folder of results, or a git revision[:platform]")
    compare.add_argument("--margin", type=float, default=0.02, help="difference that does not matter (default 0.02)")
    compare.add_argument("--json", action="store_true", help="print JSON instead of a table")
    compare.add_argument("--html", type=Path, help="also write an HTML page")
    compare.add_argument("--fail-on", choices=["slower"], help="exit with 1 where a case is slower")
    args = parser.parse_args()
    try:
        return globals()[f"_{args.command}"](args) or 0
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


def _probe(args: argparse.Namespace) -> None:
    found = machine.probe()
    print(json.dumps({**asdict(found), "slug": found.slug, "fingerprint": found.fingerprint}, indent=1))


def _check(args: argparse.Namespace) -> None:
    from scalecard import specs

    problems = []
    for name, block in args.blocks.items():
        try:
            specs.build(name, block)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))


def _run(args: argparse.Namespace) -> None:
    from scalecard import proof, runner

    found = machine.probe()
    expected = machine.from_facts(json.loads(args.machine.read_text()))
    if found.fingerprint != expected.fingerprint:
        raise ValueError(
            f"{args.machine}: describes {expected.describe()} ({expected.fingerprint}), but this machine is"
            f" {found.describe()} ({found.fingerprint}); give it a platform label of its own"
        )
    try:
        runner.run(args.name, args.spec, found, args.output.parent.name, args.output, strict=args.strict)
    except proof.ProofFailed as error:
        raise ValueError(f"{args.name}: {error}") from error


def _plot(args: argparse.Namespace) -> None:
    from scalecard import sections
    from scalecard.sections import style

    figure = sections.load(args.name).plot([schema.load(path) for path in args.results])
    for path in args.output:
        style.save(figure, path)


def _report(args: argparse.Namespace) -> None:
    from scalecard import report

    results = [schema.load(path) for path in args.results]
    schema.write_atomically(args.output, report.render(results, args.figures))


def _compare(args: argparse.Namespace) -> int:
    from scalecard import compare, compare_views, sources

    if not 0 <= args.margin < 1:
        raise ValueError(f"--margin {args.margin:g}: must be a fraction from 0 to below 1, as 0.02 for 2 %")
    found = compare.compare(sources.find(args.a), sources.find(args.b), margin=args.margin)
    print(compare_views.as_json(found) if args.json else compare_views.as_text(found))
    if args.html:
        schema.write_atomically(args.html, compare_views.as_html(found))
    return int(args.fail_on == "slower" and found.count("slower") > 0)


if __name__ == "__main__":
    sys.exit(main())
