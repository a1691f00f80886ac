"""What a run prints: its plan, one message per job, and in the end the report or the end of the failed job's log."""

import re
from pathlib import Path

import pytest
from support.projects import SMOKE, completed, snakemake

pytestmark = pytest.mark.workflow

EXPERIMENTS = Path("workflow", "src", "scalecard", "experiments")


def test_it_starts_with_the_plan_and_ends_with_findings_and_the_report(own_copy: Path) -> None:
    said = completed(own_copy, *SMOKE, "--forcerun", "async_timing")
    plan, measuring = said.index("1 experiment to measure"), said.index("[async_timing, 1 of 1]")
    assert plan < said.index("last time") < measuring < said.index("Done in")
    closing = said[said.index("Done in") :]
    assert len(re.findall(r"^  - ", closing, re.MULTILINE)) == 3, "the leading findings"
    assert "Report: results/report.html" in closing
    assert "records/record.py" not in said, "no lists of input files"


def test_a_failed_experiment_is_named_last_with_the_end_of_its_log(own_copy: Path) -> None:
    module = own_copy / EXPERIMENTS / "async_timing.py"
    planted = "import sys\n\nif sys.argv[1:2] == ['run']:\n    raise OSError('planted')\n"  # it cannot even begin
    module.write_text(f"{module.read_text()}\n{planted}")
    done = snakemake(own_copy, *SMOKE)
    assert done.returncode != 0
    closing = done.stdout[done.stdout.index("Failed after") :]
    assert "async_timing.log" in closing
    assert "planted" in closing
    assert "pipeline.log" not in closing
    assert "records/record.py" not in done.stdout, "no lists of input files, in errors neither"


def test_a_python_path_of_the_user_reaches_the_jobs_but_not_before_our_code(own_copy: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "scalecard").mkdir(parents=True)
    (theirs / "scalecard" / "__init__.py").write_text("raise ImportError('not ours')")
    (theirs / "sitecustomize.py").write_text(f"open({str(theirs / 'seen')!r}, 'a').write('x')")
    (own_copy / "results" / "figures" / "allreduce.svg").unlink()
    (theirs / "seen").unlink(missing_ok=True)
    completed(own_copy, "results/figures/allreduce.svg", *SMOKE, PYTHONPATH=str(theirs))
    assert len((theirs / "seen").read_text()) > 1, "by Snakemake, and by its job"
