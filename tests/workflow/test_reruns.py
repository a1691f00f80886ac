"""What an edit makes the next run do: an experiment's inputs are what it imports, and no more."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scalecard import experiments
from scalecard.report import answers
from support.projects import SMOKE, completed, made_at, made_since, outputs, planned

pytestmark = pytest.mark.workflow

PACKAGE = Path("workflow", "src", "scalecard")
# An edited module, the experiments that import it, and the figures that are drawn by it besides.
REACHED = {
    "parallel/pipeline.py": (["model_parallel", "pipeline", "strategies"], []),
    "parallel/ddp.py": (["ddp", "strategies", "tuning"], []),
    "measuring/memory.py": (["model_parallel", "pipeline", "strategies", "tensor_parallel", "tuning"], []),
    "distributed/launch.py": (["allreduce", "ddp", "health", "hybrid", "pipeline", "strategies", "tuning"], []),
    "experiments/async_timing.py": (["async_timing"], []),
    "report/sections/allreduce.py": ([], ["allreduce"]),
    "figures/style.py": ([], [*experiments.names(), *answers.names()]),
    "analysis/breakdown.py": ([], ["why"]),
    "report/table.py": ([], [*experiments.names(), *answers.names()]),
}
REACH_NOTHING = ("__init__.py", "__main__.py", "cli/commands.py", "progress.py", "jobs/config.py")


@contextmanager
def edited(folder: Path, *modules: str) -> Iterator[None]:
    """The project with one comment more at the end of each of these modules."""
    before = {folder / PACKAGE / module: (folder / PACKAGE / module).read_text() for module in modules}
    for path, text in before.items():
        path.write_text(f"{text}\n# a comment\n")
    yield
    for path, text in before.items():
        path.write_text(text)


@pytest.mark.parametrize("module", REACHED)
def test_an_edit_reaches_what_imports_the_module(own_copy: Path, module: str) -> None:
    measured, drawn = REACHED[module]
    exported = module in ("figures/style.py", "report/table.py")
    with edited(own_copy, module):
        assert planned(own_copy, *SMOKE) == outputs(measured, figures=drawn, exported=exported)


def test_an_edit_that_is_taken_back_and_edits_around_the_measurements_reach_nothing(own_copy: Path) -> None:
    with edited(own_copy, *REACHED):
        pass
    with edited(own_copy, *REACH_NOTHING):
        assert planned(own_copy, *SMOKE) == set()


def test_a_run_makes_what_an_edit_reaches_and_then_there_is_nothing_to_do(own_copy: Path) -> None:
    before = made_at(own_copy)
    with edited(own_copy, "experiments/async_timing.py", "report/sections/allreduce.py"):
        completed(own_copy, *SMOKE)
        assert made_since(own_copy, before) == outputs(["async_timing"], figures=["allreduce"])
        assert planned(own_copy, *SMOKE) == set()
