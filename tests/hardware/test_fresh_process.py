"""The first process that measures begins early, with the server that ranks are forked from, and what follows waits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.projects import ROOT

SECONDS = 4
PROGRAM = """
import json, multiprocessing, os, sys, tempfile, time
from scalecard.hardware import fresh_process, isolation

def in_a_forked(results):
    results.put("slow" in sys.modules)

def work():
    began = time.monotonic()
    fresh_process.start_fork_server()
    context = multiprocessing.get_context("forkserver")
    results = context.SimpleQueue()
    forked = context.Process(target=in_a_forked, args=(results,))
    forked.start()
    found = {"forked": results.get(), "own": "slow" in sys.modules, "later": os.environ.get("LATER")}
    forked.join()
    return found | {"pid": os.getpid(), "temporary": tempfile.gettempdir(), "waited": time.monotonic() - began}

def killed():
    os.kill(os.getpid(), 9)

if __name__ == "__main__":
    preload = sys.argv[1:]
    with isolation.own_folder() as folder, fresh_process.early_start(["slow"], preload=preload):
        os.environ["LATER"] = "yes"
        fresh_process.asked("experiment", os.getcwd)
        with isolation.own_folder() as within:
            assert within == folder
        first, second = (fresh_process.in_a_fresh_process("experiment", work, early=True) for _ in range(2))
        assert fresh_process.PRELOAD in os.environ
        try:
            fresh_process.in_a_fresh_process("experiment", killed)
        except fresh_process.ProcessLost as error:
            print(json.dumps({"first": first, "second": second, "folder": str(folder), "lost": str(error)}))
"""


@pytest.mark.parametrize("preload", [["slow"], []], ids=["an experiment on ranks", "one within its process"])
def test_only_the_first_process_begins_early(tmp_path: Path, preload: list[str]) -> None:
    (tmp_path / "slow.py").write_text(f"import time; time.sleep({SECONDS})")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join([str(ROOT / "workflow" / "src"), str(tmp_path)])
    command = [sys.executable, str(program), *preload]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=60
    )
    found = json.loads(done.stdout or "null")
    assert found, done.stderr
    assert "Traceback" not in done.stderr, "nothing outlives the folder"
    first, second = found["first"], found["second"]
    assert first["pid"] != second["pid"], "each process is fresh"
    assert first["own"], "it was imported while the parent waited"
    assert not second["own"]
    for one in (first, second):
        assert one["later"] == "yes", "the environment is that of the parent when the work is known"
        assert one["temporary"] == found["folder"]
        assert one["forked"] is bool(preload)
    assert first["waited"] < SECONDS
    assert (second["waited"] > 0.8 * SECONDS) is bool(preload), "what is timed waits for the server"
    assert found["lost"] == "experiment: the measuring process was killed"


ENDED = """
import atexit
from pathlib import Path
from scalecard.hardware import fresh_process, isolation

class Told:
    def __del__(self):
        Path("finalised").touch()

told = Told()

def work():
    atexit.register(Path("handled").touch)

if __name__ == "__main__":
    with isolation.own_folder():
        fresh_process.in_a_fresh_process("experiment", work)
    print(*(path.name for path in Path().iterdir()), flush=True)
"""


def test_a_fresh_process_runs_its_exit_handlers_and_is_not_finalised(tmp_path: Path) -> None:
    """With PyTorch in it that takes a second, for which the next experiment would wait."""
    (tmp_path / "program.py").write_text(ENDED)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src")}
    command = [sys.executable, "program.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert sorted(done.stdout.split()) == ["handled", "program.py"], done.stderr


LOST = """
import os
from scalecard.hardware import fresh_process, isolation

if __name__ == "__main__":
    with isolation.own_folder(), fresh_process.early_start(["deadly"]):
        print(fresh_process.in_a_fresh_process("experiment", os.getcwd, early=True) == os.getcwd())
    print(fresh_process.PRELOAD in os.environ)
"""


def test_another_process_measures_if_the_early_one_was_lost_before(tmp_path: Path) -> None:
    """Nothing was measured yet, so nothing is lost."""
    (tmp_path / "deadly.py").write_text("import os; os.kill(os.getpid(), 9)")
    program = tmp_path / "program.py"
    program.write_text(LOST)
    path = os.pathsep.join([str(ROOT / "workflow" / "src"), str(tmp_path)])
    command = [sys.executable, str(program)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.split() == ["True", "False"], done.stderr
