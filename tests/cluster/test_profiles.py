"""The commands in profiles/generic, which are commented out: PBS, LSF and SGE, as far as their answers go."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from support.projects import ROOT

FAKES = {
    "PBS": (
        "qstat",
        {
            "echo '    job_state = R'": "running",
            "printf 'job_state = F\\n Exit_status = 0\\n'": "success",
            "printf 'job_state = F\\n Exit_status = 271\\n'": "failed",
            "exit 35": "success",
        },
    ),
    "LSF": (
        "bjobs",
        {
            "echo RUN": "running",
            "echo PEND": "running",
            "echo DONE": "success",
            "echo EXIT": "failed",
            "exit 255": "success",
        },
    ),
}


@pytest.mark.parametrize("scheduler", ["PBS", "LSF", "SGE"])
def test_the_commented_commands_are_yaml_and_the_status_is_understood(scheduler: str, tmp_path: Path) -> None:
    text = (ROOT / "profiles" / "generic" / "config.yaml").read_text()
    block = re.search(rf"^# --- {scheduler}.*?\n(.*?)^# ?(---|$)", text, re.MULTILINE | re.DOTALL)
    assert block
    found = yaml.safe_load(re.sub(r"^# ?", "", block[1], flags=re.MULTILINE))
    assert sorted(found) == [f"cluster-generic-{what}-cmd" for what in ("cancel", "status", "submit")]
    assert "{resources.runtime}" in found["cluster-generic-submit-cmd"]

    def status(**said: str) -> str:
        for name, answer in said.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        command = f"{found['cluster-generic-status-cmd']} '17'"
        return subprocess.check_output(command, shell=True, text=True, env={"PATH": path}).strip()

    if scheduler == "SGE":
        assert status(qstat="exit 0", qacct="exit 1") == "running"
        assert status(qstat="exit 1", qacct="exit 1") == "running", "not in the accounts so far"
        assert status(qstat="exit 1", qacct="echo 'exit_status  0'") == "success"
        assert status(qstat="exit 1", qacct="echo 'exit_status  137'") == "failed"
        return
    name, answers = FAKES[scheduler]
    for said, expected in answers.items():
        assert status(**{name: said}) == expected
