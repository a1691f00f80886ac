"""The filter on Snakemake's logger: shorter, and every failure remembered."""

import logging
from typing import Any

import pytest
from scalecard.jobs.startup import Terminal
from snakemake_interface_logger_plugins.common import LogEvent


def record(message: str, **facts: Any) -> logging.LogRecord:
    made = logging.LogRecord("snakemake", logging.INFO, "file", 1, message, None, None)
    made.__dict__.update(facts)
    return made


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("Select jobs to execute...", False),
        ("Execute 12 jobs...", False),
        ("Building DAG of jobs...", True),
        ("Nothing to be done (all requested files are present and up to date).", True),
        ("Exiting because a job execution failed. Look above for error messages", True),
    ],
)
def test_what_is_kept(message: str, kept: bool) -> None:
    assert Terminal().filter(record(message)) is kept


def test_a_failed_job_is_shown_without_its_inputs_and_remembered_with_its_log() -> None:
    terminal = Terminal()
    inputs = [f"source{index}.py" for index in range(60)]
    error = record("", event=LogEvent.JOB_ERROR, rule_name="ddp", input=inputs, log=["logs/ddp.log"])
    assert terminal.filter(error)
    assert error.__dict__["input"] == []
    figures = [record("", event=LogEvent.JOB_ERROR, rule_name="figure", input=[], log=[f"logs/{n}.log"]) for n in "ab"]
    without_log = record("", event=LogEvent.JOB_ERROR, rule_name="all", input=[], log=None)
    assert all(terminal.filter(each) for each in (*figures, without_log))
    assert terminal.failed == ["logs/ddp.log", "logs/a.log", "logs/b.log"]
