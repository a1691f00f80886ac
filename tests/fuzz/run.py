"""`make fuzz`: odd configurations and results, by the thousand. Each accepted with cause, or refused clearly.

Options     make fuzz ARGS="--seed 7 --count 5000"
Result      how often each outcome occurred, what was neither, and exit status 1 if there was any
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the modules that tests share

from configurations import configurations
from result_files import results

PARTS = {"configurations": configurations, "results": results}
USUAL = {"configurations": 3000, "results": 300}  # a result is drawn and reported, which takes a second
SHOWN = 20  # offending examples


def main() -> int:
    """Run every part; 1 if any input ended in a traceback, in an unclear error or was wrongly accepted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help=f"alterations in each part (default {USUAL})")
    parser.add_argument("--only", choices=PARTS, help="one part")
    args = parser.parse_args()
    found = 0
    for name in [args.only] if args.only else PARTS:
        started = time.monotonic()
        outcomes, offending = PARTS[name](args.seed, args.count or USUAL[name])
        found += len(offending)
        print(f"{name}, seed {args.seed}: {sum(outcomes.values())} altered in {time.monotonic() - started:.0f} s")
        for outcome, number in outcomes.items():
            print(f"  {number:6} {outcome}")
        for example in offending[:SHOWN]:
            print(f"  wrong: {example}")
    print(f"{found} wrong")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
