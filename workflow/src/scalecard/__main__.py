"""The command line: parse, call, write, nothing else. Bad input is one error on stderr and exit status 2."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from scalecard import host, machine, schema


def main() -> int:
    """Run one command and return the exit status."""
    args = _parser().parse_args()
    try:
        return globals()[f"_{args.command}"](args) or 0
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scalecard", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    probe = commands.add_parser("probe", help="print what this machine is, as JSON")
    probe.add_argument("--output", type=Path, help="write machine.json for a cluster whose nodes are all like this one")
    check = commands.add_parser("check", help="check the experiments' blocks of a configuration")
    check.add_argument("scales", type=json.loads, help="JSON: scale to experiment name to its merged block")
    container = commands.add_parser("container", help="make or find the image, and write its marker")
    container.add_argument("settings", type=json.loads, help="JSON: the container block of config.yaml")
    container.add_argument("--shared", action="store_true", help="for other nodes: of auto's engines only Apptainer")
    container.add_argument("--output", type=Path, required=True, help="the marker")
    fetch = commands.add_parser("fetch", help="download and verify the images")
    fetch.add_argument("--data-dir", type=Path, required=True)
    _add_run(commands.add_parser("run", help="measure one experiment"))
    for name, what in (("plot", "draw one experiment's figure, as SVG and PNG"), ("report", "write the HTML report")):
        command = commands.add_parser(name, help=what)
        command.add_argument("--results", type=Path, nargs="+", required=True, help="the current platform's first")
        if name == "plot":
            command.add_argument("name")
            command.add_argument("--output", type=Path, nargs="+", required=True, help="files to write, .svg or .png")
        else:
            command.add_argument("--figures", type=Path, required=True, help="folder of the SVG files")
            command.add_argument("--output", type=Path, required=True)
    _add_compare(commands.add_parser("compare", help="say which cases of B are faster or slower than those of A"))
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
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


def _add_compare(compare: argparse.ArgumentParser) -> None:
    for name in ("a", "b"):
        compare.add_argument(name, help="a platform, a folder of results, or a git revision[:platform]")
    compare.add_argument("--margin", type=float, default=0.02, help="difference that does not matter (default 0.02)")
    compare.add_argument("--json", action="store_true", help="print JSON instead of a table")
    compare.add_argument("--html", type=Path, help="also write an HTML page")
    compare.add_argument("--fail-on", choices=["slower"], help="exit with 1 where a case is slower")


def _probe(args: argparse.Namespace) -> None:
    found = machine.probe()
    if args.output:
        from scalecard import settings

        settings.write_machine(args.output, found.any_node())
    print(json.dumps({**asdict(found), "slug": found.slug, "fingerprint": found.fingerprint}, indent=1))


def _check(args: argparse.Namespace) -> None:
    from scalecard import specs

    told: dict[str, set[str]] = {}
    for blocks in args.scales.values():
        for name, block in blocks.items():
            try:
                specs.build(name, block)
            except ValueError as error:
                for line in str(error).splitlines():
                    told.setdefault(line.removeprefix(f"experiments.{name}."), set()).add(line)
    if told:  # what is wrong with a value that several share is told once
        raise ValueError("\n".join(lines.pop() if len(lines) == 1 else problem for problem, lines in told.items()))


def _container(args: argparse.Namespace) -> None:
    from scalecard import __version__
    from scalecard.containers import build, engines, launch, marker

    wanted = args.settings
    engine, why = engines.choose(wanted["engine"], shared=args.shared)
    print(f"experiments run in {'the host environment' if engine == 'none' else engine}: {why}", flush=True)
    try:
        made = build.prepare(
            engine,
            why,
            base_image=wanted["base_image"],
            build_args=wanted["build_args"],
            image=wanted["image"],
            version=__version__,
        )
        blind = launch.why_no_gpus(made) if engine != "none" and launch.has_gpus() else ""
        if blind:
            raise launch.NoGpus(f"container.engine = {engine}: it does not pass the GPUs on ({blind}). {launch.ADVICE}")
    except (build.NoBaseImage, launch.NoGpus) as error:
        if wanted["engine"] != "auto":
            raise
        print(f"warning: {error}\nThe experiments run in the host's environment instead.", flush=True)
        reason = str(error).splitlines()[0].removesuffix(" Its last lines:")
        made = marker.Marker(engine="none", why=f"{engine} answers, but: {reason}")
    marker.write(args.output, made)


def _fetch(args: argparse.Namespace) -> None:
    from scalecard import data

    data.load("fashion-mnist", args.data_dir)


def _run(args: argparse.Namespace) -> None:
    from scalecard import proof, runner

    expected = machine.from_facts(json.loads(args.machine.read_text()))
    found = machine.probe().alike(expected)
    if found.fingerprint != expected.fingerprint:
        raise ValueError(
            f"{args.machine}: describes {expected.describe()} ({expected.fingerprint}), but this machine (host, hashed:"
            f" {host.hashed_name()}) is {found.describe()} ({found.fingerprint}):"
            f" {machine.differences(expected, found)}; give it a platform label of its own"
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
    found = compare.compare(sources.find(args.a), sources.find(args.b), margin=args.margin, names=(args.a, args.b))
    print(compare_views.as_json(found) if args.json else compare_views.as_text(found))
    if args.html:
        schema.write_atomically(args.html, compare_views.as_html(found))
    return int(args.fail_on == "slower" and found.count("slower") > 0)


if __name__ == "__main__":
    sys.exit(main())
