"""A job's command on each of its nodes: which of them ends the job."""

import signal
import subprocess

from scalecard.jobs import every_node


def test_a_node_that_refuses_ends_the_job_and_one_that_is_lost_does_not() -> None:
    first = subprocess.Popen(["sleep", "60"])
    assert every_node._wait(first, subprocess.Popen(["sh", "-c", "exit 2"])) == 2
    assert first.returncode == -signal.SIGTERM
    assert every_node._wait(subprocess.Popen(["sleep", "1"]), subprocess.Popen(["sh", "-c", "kill -9 $$"])) == 0
