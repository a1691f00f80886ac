"""Whether the default run of a machine without GPUs shows what the textbooks' figures show, in numbers.

Result      a line for each number with what it must be at least; exit status 1 if one is too small
Reproduce   make && PYTHONPATH=tests .venv/bin/python tests/benchmarks/default_run.py results/PLATFORM
"""

import sys
from pathlib import Path

from scalecard.records.files import is_result_file, load
from support.shapes import DEFAULT, shapes


def main(folder: Path) -> bool:
    """Print every number; whether all are large enough."""
    every = (load(path) for path in sorted(folder.glob("*.json")) if is_result_file(path))
    results = {result.experiment: result for result in every}
    found = shapes(results)
    for name, least in DEFAULT.items():
        print(f"{'ok ' if found[name] >= least else 'LOW'}  {found[name]:8.3g} of {least:<5g}  {name}")
    minutes = sum(result.seconds for result in results.values()) / 60
    print(f"measured in {minutes:.1f} min")
    return all(found[name] >= least for name, least in DEFAULT.items())


if __name__ == "__main__":
    sys.exit(not main(Path(sys.argv[1])))
