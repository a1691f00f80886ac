"""The server from which ranks are forked begins with the process that measures, and what is timed waits for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.projects import ROOT

SLOW = "import time; time.sleep(3)"
MEASURES = """
import multiprocessing, os, sys, time
from multiprocessing import forkserver
from scalecard.hardware import isolation

def look(results):
    results.put("slow" in sys.modules)

if __name__ == "__main__":
    if len(sys.argv) > 1:
        isolation.will_fork(sys.argv[1:])
    began = time.monotonic()
    isolation.begin(os.getppid())
    started = time.monotonic()
    isolation.await_fork_server()
    ready = time.monotonic()
    context = multiprocessing.get_context("forkserver")
    results = context.SimpleQueue()
    forked = context.Process(target=look, args=(results,))
    forked.start()
    print(results.get(), started - began < 1.5, ready - began > 2.5, time.monotonic() - ready < 2.5)
    forked.join()
"""


@pytest.mark.parametrize(
    ("modules", "found"),
    [(["slow"], "True True True True"), ([], "False True False True")],
    ids=["an experiment on ranks", "one without"],
)
def test_a_server_imports_early_what_the_forked_need(tmp_path: Path, modules: list[str], found: str) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    program = tmp_path / "measures.py"
    program.write_text(MEASURES)
    path = os.pathsep.join([str(ROOT / "workflow" / "src"), str(tmp_path)])
    command = [sys.executable, str(program), *modules]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == found, done.stderr
