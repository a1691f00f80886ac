"""`make mutants`: is what is wrong also caught? Planted wrong answers first, then those that a tool makes.

Each is put into a copy of the project. Caught by proof: the experiment ends with an error, has a failed case, or hangs.
Caught by tests: one of the fast tests fails.

Options     make mutants ARGS="--only pipeline --minutes 0"
Result      one line per mutant, the totals, and exit status 1 if a goal is missed
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the modules that tests share

import entries
import tool
from campaign import NEITHER, PROOF, TESTS, UNFINISHED, Campaign, Verdict, share, totals

GOAL, GOAL_OF_TOOL = 0.98, 0.90
TENTH_SECONDS = 165.0  # CI gives it three minutes, in all


def main() -> int:
    """Run what was asked for; 1 if a goal is missed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it, too, ends what is running
    started, args = time.monotonic(), _arguments()
    chosen = [entry for entry in entries.load() if args.only in f"{entry.file} {entry.wrong}"]
    if args.tenth:
        chosen = entries.tenth(chosen, entries.commit())
    until = started + TENTH_SECONDS if args.tenth else None
    with tempfile.TemporaryDirectory(prefix="scalecard-mutants-", ignore_cleanup_errors=True) as folder:
        campaign = Campaign(Path(folder), args.jobs, room_only=args.tenth or args.room, until=until)
        if args.tenth:
            print("a tenth, by proofs and tests that are taken to pass without a mutant, as in `make test`", flush=True)
        elif problems := campaign.baseline(entry.experiment for entry in chosen if entry.experiment):
            print("nothing was tried:", *(f"without a mutant {problem}" for problem in problems), sep="\n  ")
            return 1
        tests_first = args.tests_first or args.tenth
        planted = [replace(entry.mutant(), tests_first=tests_first) for entry in chosen]
        reached = _handwritten(campaign, chosen, planted, tenth=args.tenth)
        if args.minutes and not args.tenth:
            reached &= _made_by_tool(campaign, args.only, args.minutes)
    return 0 if reached else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only those with this text in their file or sentence"
    )
    parser.add_argument("--tenth", action="store_true", help="a tenth of the handwritten ones, by the commit's hash")
    parser.add_argument("--room", action="store_true", help="only the tests of the mutant's room, which is quicker")
    parser.add_argument("--tests-first", action="store_true", help="proofs only where no test fails, which is quicker")
    parser.add_argument("--minutes", type=float, default=20, help="how long to run the tool's mutants; 0: not at all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many to run side by side")
    return parser.parse_args()


def _handwritten(
    campaign: Campaign, chosen: Sequence[entries.Entry], planted: Sequence[entries.Mutant], *, tenth: bool
) -> bool:
    """Whether the goal is reached; of a tenth, whether all are caught but those that are known to survive."""
    known = {entry.wrong: entry.survives for entry in chosen if entry.survives}
    verdicts: list[Verdict] = []
    for verdict in campaign.verdicts(planted):
        verdicts.append(verdict)
        why = f"; known: {known[verdict.mutant.wrong]}" if verdict.mutant.wrong in known else ""
        print(f"{verdict.line}{why}", flush=True)
    for verdict in verdicts:
        if verdict.mutant.wrong in known and verdict.caught in (PROOF, TESTS):
            print(f"is caught by now, so remove its `survives`: {verdict.mutant.wrong}")
    print(totals("planted wrong answers", verdicts, GOAL), flush=True)
    if tenth:
        return not [v for v in verdicts if v.caught == NEITHER and v.mutant.wrong not in known]
    return share(verdicts) >= GOAL


def _made_by_tool(campaign: Campaign, only: str, minutes: float) -> bool:
    """Whether enough of the tool's are caught, of as many as the minutes allow, chosen by the commit."""
    made = [mutant for mutant in tool.mutants() if only in mutant.file]
    campaign.until = time.monotonic() + 60 * minutes
    verdicts: list[Verdict] = []
    for verdict in campaign.verdicts(entries.shuffled(made, entries.commit())):
        if verdict.caught != UNFINISHED:
            verdicts.append(verdict)
            print(verdict.line, flush=True)
    survivors = [verdict.mutant for verdict in verdicts if verdict.caught == NEITHER]
    if survivors:
        print("write a test for these, or name them in tests/mutants/equivalent.yaml and say why:")
        print("".join(map(tool.as_equivalent, survivors)), end="")
    print(f"the tool makes {len(made)} mutants besides {len(tool.equivalents())} named as equivalent")
    print(totals("of the tool's, by chance", verdicts, GOAL_OF_TOOL), flush=True)
    return share(verdicts) >= GOAL_OF_TOOL


if __name__ == "__main__":
    sys.exit(main())
