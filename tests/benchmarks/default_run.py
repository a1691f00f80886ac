"""Whether the default run of a machine without GPUs shows what the textbooks' figures show, in numbers.

Result      a line for each number with what it must be at least; exit status 1 if one is too small
Reproduce   make && PYTHONPATH=tests .venv/bin/python tests/benchmarks/default_run.py results/PLATFORM
"""

import sys
from pathlib import Path

from scalecard.records.files import is_result_file, load
from support.shapes import SHAPES


def main(folder: Path) -> bool:
    """Print every number; whether all are large enough."""
    every = (load(path) for path in sorted(folder.glob("*.json")) if is_result_file(path))
    results = {result.experiment: result for result in every}
    found = [(name, float(value(results)), least) for name, value, least in SHAPES]
    for name, value, least in found:
        print(f"{'ok ' if value >= least else 'LOW'}  {value:8.3g} of {least:<5g}  {name}")
    minutes = sum(result.seconds for result in results.values()) / 60
    print(f"measured in {minutes:.1f} min")
    return all(value >= least for _, value, least in found)


if __name__ == "__main__":
    sys.exit(not main(Path(sys.argv[1])))
