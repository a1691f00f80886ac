"""`make faults`: the workflow, killed at random moments, on full disks, with lost ranks. What is lost, left, or needs a
hand? Nothing should.

Each fault is done to a copy of the project, at the scale of tests/smoke.yaml and with a few experiments only.

Options     make faults ARGS="--seed 7 --kill 20 --only clock"
Result      a line per fault, and exit status 1 if one did what it should not
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the modules that tests share

import kills
import others
import places
from workplace import Unexpected, Workplace

APART = "SCALECARD_FAULTS_APART"
PLACES: dict[str, Callable[[Workplace], str]] = {
    "TMPDIR is full": places.full_temporary_folder,
    "results/ is full": places.full_results,
    "results/ fills up while it measures": places.results_that_fill_up,
    "results/ is read-only": places.read_only_results,
}


def main() -> int:
    """Do what was asked for; 1 if a fault did what it should not."""
    args = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it, too, ends what is running
    _go_apart()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="scalecard-faults-", ignore_cleanup_errors=True) as folder:
        place = Workplace(Path(folder), "project", tuple(args.experiments.split(",")))
        counts = {"SIGKILL": args.kill, "SIGTERM": args.terminate, "SIGINT": args.interrupt}
        wanted: dict[str, Callable[[Workplace], str]] = {}
        if sum(counts.values()):
            wanted["signals at random moments"] = lambda place: kills.campaign(place, counts, args.seed)
        wanted |= others.ALL | PLACES
        print(f"seed {args.seed}, {', '.join(place.experiments)}", flush=True)
        place.complete()
        for name, fault in wanted.items():
            if args.only in name:
                failed += not _tried(name, fault, place)
    print("nothing was lost, left, or needed a hand" if not failed else f"{failed} faults did what they should not")
    return int(failed > 0)


def _tried(name: str, fault: Callable[[Workplace], str], place: Workplace) -> bool:
    """Whether the fault did no harm, which includes that the next run completes and leaves nothing."""
    began = time.monotonic()
    try:
        if name in PLACES and os.geteuid():
            print(f"{name}: skipped, needs root", flush=True)
            return True
        said = fault(place)
        place.complete()
        if left := place.left():
            raise Unexpected(f"left: {', '.join(left)}")
    except (Unexpected, subprocess.TimeoutExpired) as error:
        print(f"{name}: WRONG: {error}", flush=True)
        return False
    print(f"{name} ({time.monotonic() - began:.0f} s): {said}", flush=True)
    return True


def _go_apart() -> None:
    """Root mounts file systems where only this process sees them, and has a /dev/shm of its own."""
    if os.geteuid() or not shutil.which("unshare"):
        return
    if APART not in os.environ:
        os.environ[APART] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    for option, count, name in (("kill", 200, "SIGKILL"), ("terminate", 50, "SIGTERM"), ("interrupt", 50, "SIGINT")):
        parser.add_argument(f"--{option}", type=int, default=count, help=f"number of {name} to the process group")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the faults with this text in their name")
    parser.add_argument(
        "--experiments", default="async_timing,allreduce", help="what is measured; allreduce loses ranks"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
