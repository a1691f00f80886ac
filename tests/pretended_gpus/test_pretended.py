"""The code for GPUs runs to its end, without a failed case or a race, on boxes that libraries below PyTorch pretend."""

import os
import subprocess
import sys
from pathlib import Path

import boxes
import pytest
from namespaces import NEEDS, can_make_namespaces
from projects import ROOT
from scalecard import experiments
from scalecard.records.files import load
from scalecard.records.record import Result
from scalecard.report.health import verdicts

HERE = Path(__file__).parent
ON_RANKS = ("allreduce", "ddp", "hybrid", "strategies", "tensor_parallel", "pipeline", "health")
REFUSED = ("mig", "lost", "driver-570", "driver-535")
# What is said of a healthy box because it is slow or busy: a pretended GPU computes on the host's cores.
OF_RATES = {"slow", "odd one out", "slowed down"}

pytestmark = [pytest.mark.pretended, pytest.mark.skipif(bool(boxes.why_not()), reason=boxes.why_not())]


def run(*arguments: object, keep: Path | None = None, timeout: float = 900) -> str:
    """What `make pretended ARGS=...` prints, where it must succeed."""
    kept = ["--keep", str(keep)] if keep else []
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), *map(str, arguments), *kept],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'workflow' / 'src'}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def results(folder: Path) -> dict[str, Result]:
    return {path.stem: load(path) for path in (folder / "results" / "pretended").glob("*.json") if path.stem in experiments.names()}


@pytest.mark.parametrize("fault", ["wait", "reuse", "device"])
def test_a_race_is_reported_and_what_prevents_it_is_seen(fault: str) -> None:
    box = boxes.box(None, races=True)
    command = [sys.executable, str(HERE / "planted_race.py"), fault]
    raced, prevented = (boxes.run(box, [*command, *more], timeout=120) for more in ([], ["--prevented"]))
    assert raced.returncode == prevented.returncode == 0, raced.stdout + prevented.stdout
    assert raced.stdout.count("RACE on device 0: ") == 1
    assert "planted_race.py" in raced.stdout, "the place in the code"
    assert "RACE" not in prevented.stdout


@pytest.mark.parametrize("card", REFUSED)
def test_a_box_that_cannot_be_measured_is_refused_by_one_error(card: str) -> None:
    assert run("--card", card).startswith("refused, as it must be: ")
