"""Runs the smoke card on pretended GPUs, in a copy of the project, and prints what each experiment left.

    python tests/pretended_gpus/run.py [--card a100-pairs] [--devices 4] [--memory BYTES] [--races] [--nodes 2]
                                       [--only NAME ...] [--short] [--budget MINUTES] [--keep FOLDER]
                                       [--coverage]

The exit status is 1 if the run or a case failed (for want of memory: only without --memory), if an experiment left no
result, or if one of FAULTS was reported. Two kinds of cards are judged otherwise: where cases must fail, it is 1 unless
some did, all for that reason, and the run with them; where the project must refuse to measure, unless it did so with
that error.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import boxes
import two_nodes
from scalecard import experiments
from scalecard.records.files import load
from scalecard.records.record import Reason
from support.projects import SMOKE, copy_project

# What the libraries report if the program is wrong: see README.md.
FAULTS = ("RACE on device", "MISMATCH in", "KERNEL LAUNCHED, WHICH CANNOT RUN")
STATUSES = ("ok", "skipped", "failed")
TIMEOUT = 3600.0
SHOWN = 8000  # letters of the log of a run that failed


def main() -> int:
    """Run the card and return the exit status."""
    args = _arguments()
    if reason := boxes.why_not():
        print(f"pretended GPUs cannot be built: {reason}")
        return 1
    if args.coverage:
        import unexecuted  # coverage.py is needed for nothing else

        with tempfile.TemporaryDirectory(prefix="scalecard-coverage-") as data:
            return unexecuted.main(args.keep or Path(data))
    box = boxes.box(args.card, devices=args.devices, memory=args.memory, races=args.races, energy=not args.short)
    with tempfile.TemporaryDirectory(prefix="scalecard-pretended-") as folder:
        project = copy_project(args.keep or Path(folder))
        return _refusal(box, project) if box.refused else _measurement(box, project, args)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--card", help="a kind of box in cards.yaml; two H100s without it")
    parser.add_argument("--devices", type=int, help="how many GPUs, on each node")
    parser.add_argument("--memory", type=int, help="bytes of each")
    parser.add_argument("--races", action="store_true", help="look for accesses on two streams that nothing orders")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=1, help="2: as network namespaces; needs root")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="not the whole card")
    parser.add_argument("--short", action="store_true", help="two rounds of each measurement, and no energy")
    parser.add_argument("--budget", type=float, default=600, help="minutes; what has no time is listed as left out")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the copy with its results stays")
    parser.add_argument("--coverage", action="store_true", help="which lines for GPUs nothing executes; takes long")
    args = parser.parse_args()
    if args.keep and args.keep.exists() and any(args.keep.iterdir()):
        parser.error(f"--keep {args.keep}: must be empty, or the results in it would not be measured")
    return args


def _workflow(project: Path, box: boxes.Box, *targets: str, short: bool = True, budget: float = 600) -> tuple[int, str]:
    """The smoke workflow on the box: its exit status, and all that it printed."""
    settings = (*SMOKE, *(["tests/pretended_gpus/short.yaml"] if short else []))
    options = ("--cores", "1", *targets, *settings, "--config", f"platform={two_nodes.PLATFORM}", f"budget={budget:g}")
    done = boxes.run(box, [sys.executable, "-m", "snakemake", *options], folder=project, timeout=TIMEOUT)
    return done.returncode, done.stdout


def _refusal(box: boxes.Box, project: Path) -> int:
    """Print the error with which the box is refused; 1 if it is another one, or if something was measured."""
    status, log = _workflow(project, box)
    errors = [line.strip() for line in log.splitlines() if box.refused in line]
    results = list((project / "results").glob("*/*.json"))
    if status and errors and not results and "Traceback" not in log:
        print(f"refused, as it must be: {errors[0]}")
        return 0
    print(
        log[-SHOWN:], f"not refused as it must be: {len(results)} files of results, expected '{box.refused}'", sep="\n"
    )
    return 1


def _measurement(box: boxes.Box, project: Path, args: argparse.Namespace) -> int:
    """Measure, and print what came of it."""
    began = time.monotonic()
    if args.nodes == 2:
        names = args.only or list(two_nodes.EXPERIMENTS)
        status, log = two_nodes.measure(box, project, names, timeout=TIMEOUT)
    else:
        names = args.only or experiments.names()
        status, log = _workflow(project, box, *(args.only or ()), short=args.short, budget=args.budget)
    complete, reasons = _summary(project, names)
    faults = {fault: log.count(fault) for fault in FAULTS if fault in log}
    print(f"{time.monotonic() - began:.0f} s; exit status {status}; faults reported: {faults or 'none'}")
    if box.failing:
        as_expected = bool(status) and reasons == {Reason(box.failing)}
    else:
        as_expected = not status and reasons <= ({Reason.OUT_OF_MEMORY} if args.memory else set())
    if complete and as_expected and not faults:
        return 0
    print(log[-SHOWN:])
    return 1


def _summary(project: Path, names: list[str]) -> tuple[bool, set[Reason | None]]:
    """Print a line for each experiment and for all; whether each has a result, and the reasons of failed cases."""
    total, complete, reasons = Counter[str](), True, set[Reason | None]()
    for name in names:
        path = project / "results" / two_nodes.PLATFORM / f"{name}.json"
        if not path.exists():
            print(f"{name:16} no result")
            complete = False
            continue
        result = load(path)
        counts = Counter({status: result.count(status) for status in STATUSES})
        total += counts
        print(_line(name, counts))
        for record in result.records:
            if record.status == "failed" or record.reason is Reason.NO_TIME:
                print(f"    {record.case}: {record.why}")
            if record.status == "failed":
                reasons.add(record.reason)
    print(_line("in all", total))
    return complete, reasons


def _line(name: str, counts: Counter[str]) -> str:
    return f"{name:16} {', '.join(f'{counts[status]} {status}' for status in STATUSES)}"


if __name__ == "__main__":
    sys.exit(main())
