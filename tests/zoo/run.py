"""Models of many kinds as users write them, by every strategy on two CPU ranks: what became of each, as a table.

    make zoo                               # all of them; about five minutes on two cores
    make zoo ARGS="padded_language_model"  # some, by the names of their files

The files are those of tests/zoo/models and of tests/benchmarks/training/of_others. It fails if one is neither measured
by data parallelism nor refused with a reason.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scalecard import experiments
from scalecard.experiments import strategies
from scalecard.hardware.machine import probe
from scalecard.records.record import Record
from support.blocks import SHORTEST
from support.projects import ROOT

FOLDERS = ("tests/zoo/models", "tests/benchmarks/training/of_others")
HELPERS = ("helper_",)
WRONG = ("knows_its_rank", "small_device")  # on purpose: that a proof fails, or a device is too small
LEADING = ("DDP", "FSDP parameters")


@dataclass(frozen=True)
class Outcome:
    """A model's records of step times on two devices and, if it was refused as a whole, why."""

    path: Path
    seconds: float
    steps: Sequence[Record]
    refused: str = ""

    @property
    def lines(self) -> int:
        return len(self.path.read_text().splitlines())

    @property
    def measured(self) -> list[str]:
        """The strategies that were timed."""
        return [record.text("strategy") for record in self.steps if record.status == "ok"]

    def note(self, strategy: str) -> str:
        """What the record of a strategy says."""
        return next((r.note for r in self.steps if r.case.get("strategy") == strategy), self.refused)

    @property
    def row(self) -> str:
        """A line of the table."""
        became = self.refused or ", ".join(self.measured)
        return f"{self.path.stem:24} {self.lines:5} {self.seconds:6.0f} s  {became}"


def files() -> list[Path]:
    """All models, by their names."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).glob("*.py")]
    return sorted((path for path in found if not path.stem.startswith((*HELPERS, *WRONG))), key=lambda path: path.stem)


def outcome(path: Path) -> Outcome:
    """A model by every strategy on two CPU ranks, in the present folder: the project's."""
    began, name = time.monotonic(), path.stem
    own = {"file": str(path.relative_to(ROOT)), "batch_size": 8}
    always = {"devices": 2, "seed": 0, "dataset": "synthetic", "data_dir": "data", "nodes": 1, "trace": False}
    sweeps = {"scaling": ["strong"], "micro_batches": 4, "precision": [], "checkpointing": [], "check_steps": 2}
    block = {**always, **sweeps, "measure": SHORTEST, "workloads": {name: own}}
    try:
        spec = experiments.build("strategies", json.dumps(block))
        records = list(strategies.run(spec, replace(probe(), num_devices=2)))
    except ValueError as error:
        return Outcome(path, time.monotonic() - began, [], str(error))
    steps = [record for record in records if record.metric == "step_time"]
    refused = next((record.note for record in steps if record.case == {"workload": name}), "")
    several = [record for record in steps if record.case.get("devices") == 2]
    return Outcome(path, time.monotonic() - began, several, refused)


def main(names: Sequence[str]) -> int:
    """The exit status: 1 if a model was neither measured by data parallelism nor refused with a reason."""
    chosen = [path for path in files() if not names or path.stem in names]
    found = []
    for path in chosen:
        found.append(outcome(path))
        print(found[-1].row, flush=True)
    by_both = sum(set(LEADING) <= set(one.measured) for one in found)
    print(f"{len(found)} models: {by_both} measured by {' and '.join(LEADING)}")
    lost = [one.path.stem for one in found if not (one.refused or set(LEADING) & set(one.measured))]
    print(f"not measured, and not refused: {', '.join(lost) or 'none'}")
    return bool(lost)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
