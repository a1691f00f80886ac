"""Shortens Snakemake's own messages. No failure is dropped: failed jobs are kept for the closing summary."""

import logging
import re

from snakemake_interface_logger_plugins.common import LogEvent

REPEATED = re.compile(
    r"Select jobs to execute\.\.\.|Execute \d+ jobs\.\.\.|Singularity containers: ignored|Using shell: .*"
    r"|Assuming unrestricted shared filesystem usage\."
)


class Terminal(logging.Filter):
    """A filter for Snakemake's logger. `failed` lists the logs of the jobs that failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop messages that repeat others, and a failed job's dozens of inputs, which hide its log."""
        if getattr(record, "event", None) == LogEvent.JOB_ERROR:
            facts = record.__dict__
            facts["input"] = []
            self.failed += facts["log"] or []
        return not REPEATED.fullmatch(str(record.msg))
