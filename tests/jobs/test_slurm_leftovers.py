"""Which of Slurm's jobs a killed workflow left, and which command lines wait for them."""

from pathlib import Path

import pytest
from scalecard.jobs import startup


def test_the_jobs_of_a_killed_workflow_are_those_that_it_marked(tmp_path: Path) -> None:
    marks = tmp_path / "incomplete" / "nested"
    marks.mkdir(parents=True)
    (marks / "b25l").write_text('{"external_jobid": "17"}')
    (marks.parent / "dHdv").write_text('{"external_jobid": null}')
    assert startup.marked_jobs(tmp_path) == {"17"}
    assert startup.marked_jobs(tmp_path / "never used") == set()


def test_a_job_that_runs_has_lost_its_mark_and_is_known_by_its_name_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "20")
    run = "1307d4e0-68ea-41b1-9426-a53de2966eef"
    queue = "\n".join(
        [
            f"15|{run}|{tmp_path}",
            f"16|mine_{run}|{tmp_path}",
            f"17|{run}|{tmp_path / 'elsewhere'}",
            f"18|{run}|/other",
            f"19|a shell|{tmp_path}",
            f"20|{run}|{tmp_path}",
        ]
    )
    assert startup.left_over(queue, {"18"}, folder=tmp_path) == {"15", "16", "18"}
    assert startup.left_over("", {"18"}, folder=tmp_path) == set()


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
    assert startup.only_looks(["snakemake", "--workflow-profile", "slurm", *line.split()]) == looks
