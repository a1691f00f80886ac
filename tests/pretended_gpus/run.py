"""Runs the whole smoke card on pretended GPUs, in a copy of the project, and prints what each experiment left.

    python tests/pretended_gpus/run.py --libraries FOLDER [--devices 2] [--memory BYTES] [--races] [--only NAME ...]

The exit status is 1 if the run or a case failed, if an experiment left no result, or if a race was reported.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from projects import SMOKE, copy_project, snakemake
from scalecard import experiments
from scalecard.records.files import load

RACE = "[pretended CUDA"  # how a report of a race begins
TIMEOUT = 3600.0


def main() -> int:
    """Run the card and return the exit status."""
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="scalecard-pretended-") as folder:
        project = copy_project(Path(folder))
        done = snakemake(
            project,
            *("--cores", "1", *args.only, *SMOKE, "--config", "platform=pretended", "budget=600"),
            timeout=TIMEOUT,
            **_environment(args),
        )
        complete = _told(project / "results" / "pretended", args.only or experiments.names())
    races = args.races and RACE in done.stdout
    if done.returncode or races or not complete:
        print(done.stdout[-8000:])
    return int(bool(done.returncode or races or not complete))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", type=Path, required=True, help="the folder that build.sh filled")
    parser.add_argument("--devices", type=int, default=2, help="how many GPUs")
    parser.add_argument("--memory", type=int, help="bytes of each")
    parser.add_argument("--races", action="store_true", help="look for accesses on two streams that nothing orders")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="not the whole card")
    return parser.parse_args()


def _environment(args: argparse.Namespace) -> dict[str, str]:
    wanted = {
        "PRETEND_GPUS": str(args.devices),
        "PRETEND_LIBS": str(args.libraries.resolve()),
        "OMP_NUM_THREADS": "1",
    }
    if args.memory:
        wanted["PRETEND_MEMORY"] = str(args.memory)
    return {**wanted, "PRETEND_RACES": "1"} if args.races else wanted


def _told(results: Path, names: list[str]) -> bool:
    """Print a line for each experiment; whether all have a result in which no case failed."""
    complete = True
    for name in names:
        path = results / f"{name}.json"
        if not path.exists():
            print(f"{name:16} no result")
            complete = False
            continue
        result = load(path)
        print(f"{name:16} {', '.join(f'{result.count(status)} {status}' for status in ('ok', 'skipped', 'failed'))}")
        for record in result.records:
            if record.status == "failed":
                print(f"    {record.case}: {record.note}")
                complete = False
    return complete


if __name__ == "__main__":
    sys.exit(main())
