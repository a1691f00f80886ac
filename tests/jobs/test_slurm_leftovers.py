"""Which of Slurm's jobs a killed workflow left, and which command lines wait for them."""

from pathlib import Path

import pytest
from scalecard.jobs import slurm_leftovers


def test_the_jobs_of_a_killed_workflow_are_those_that_it_marked(tmp_path: Path) -> None:
    marks = tmp_path / "incomplete" / "nested"
    marks.mkdir(parents=True)
    (marks / "b25l").write_text('{"external_jobid": "17"}')
    (marks.parent / "dHdv").write_text('{"external_jobid": null}')
    assert slurm_leftovers.marked_jobs(tmp_path) == {"17"}
    assert slurm_leftovers.marked_jobs(tmp_path / "never used") == set()


@pytest.mark.parametrize(
    ("line", "looks"),
    [
        ("-n", True),
        ("-nq", True),
        ("--dry-run", True),
        ("--unlock", True),
        ("--report x.html", True),
        ("-c all", False),
    ],
)
def test_what_only_looks_waits_for_nothing(line: str, looks: bool) -> None:
    assert slurm_leftovers.only_looks(["snakemake", "--workflow-profile", "slurm", *line.split()]) == looks
