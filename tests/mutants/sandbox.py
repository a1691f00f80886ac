"""A copy of the project that holds one mutant at a time, and what is run in it: the proof, and the fast tests."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from entries import PACKAGE, Mutant
from support.projects import ROOT, copy_project

FAST = "not workflow and not cluster and not container and not browser"  # `make test-fast` and `make test-ranks`
# `scalecard run` with a lock of its own: copies that wait for one another would prove nothing faster.
RUN = (
    "import sys; from pathlib import Path; from scalecard.hardware import isolation;"
    " isolation.LOCK = Path(sys.argv.pop(1)); from scalecard.cli.commands import main; sys.exit(main())"
)
FAILED_CASES = re.compile(r"^\[\w+\] done: .*\b\d+ failed\b", re.MULTILINE)
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class OutOfTime(Exception):
    """The command did not end in time."""


@dataclass(frozen=True)
class Done:
    """What a command left: its exit status, and stdout and stderr together."""

    status: int
    output: str

    @property
    def last_line(self) -> str:
        """What it said last, shortened."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:160] if lines else f"exit status {self.status}"


class Sandbox:
    """A copy of the project in a folder of its own, with the files that `scalecard run` needs beside it."""

    def __init__(self, folder: Path) -> None:
        self.root, self._temporary = folder / "project", folder / "tmp"
        self._temporary.mkdir(parents=True)
        self._running: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._held: Mutant | None = None
        self._passed: dict[str, bool] = {}  # whether a test passes without a mutant
        copy_project(self.root)
        done = self._run([sys.executable, "tests/mutants/smoke.py", str(folder)], self.root, timeout=300)
        if done.status:
            raise RuntimeError(f"the copy in {self.root} cannot be used:\n{done.output[-3000:]}")

    @contextmanager
    def holding(self, mutant: Mutant | None) -> Iterator[None]:
        """The copy with a mutant in it, or without the one that it holds; afterwards as it was."""
        before, self._held = self._held, mutant
        self._write(before, original=True)
        self._write(mutant)
        try:
            yield
        finally:
            self._write(mutant, original=True)
            self._write(before)
            self._held = before

    def _write(self, mutant: Mutant | None, *, original: bool = False) -> None:
        """Write a mutant's module, or the module that it was made from."""
        if mutant:
            text = (ROOT / PACKAGE / mutant.file).read_text() if original else mutant.code
            (self.root / PACKAGE / mutant.file).write_text(text)

    def prove(self, experiment: str, timeout: float) -> Done:
        """The experiment as the workflow runs it, at the smoke scale, at which no case fails.

        OutOfTime if it does not end.
        """
        beside = self.root.parent
        with tempfile.TemporaryDirectory(dir=self._temporary) as folder:
            arguments = ["run", experiment, "--spec", (beside / f"{experiment}.block").read_text()]
            arguments += ["--machine", str(beside / "machine.json"), "--output", f"{folder}/smoke/{experiment}.json"]
            done = self._run([sys.executable, "-c", RUN, f"{folder}/lock", *arguments], self.root, timeout)
            return replace(done, status=1) if FAILED_CASES.search(done.output) else done

    def test_files(self, mutant: Mutant) -> list[list[str]]:
        """The test files in five groups, to be run one after the other, because collecting takes longer than failing.

        First the one named after the module, then those that import it, of its room those in a folder that is named
        like its folder, and the others; then all other rooms.
        """
        groups: list[list[str]] = [[], [], [], [], []]
        room = mutant.tests.partition("/")[0]
        for path in sorted((self.root / "tests").rglob("test_*.py")):
            name = path.relative_to(self.root)
            if name.parts[1] != "mutants":  # they would say that the code is mutated
                near = nearness(path, mutant)
                groups[near if near < 2 or name.parts[1] == room else 4].append(str(name))
        return groups

    def failing_test(self, files: Sequence[str], timeout: float, *, confirm: bool) -> str:
        """The first test that fails, or ''; to `confirm`, one that fails again, and that passes without the mutant."""
        ignored: list[str] = []
        while True:
            done = self._pytest([*files, *(f"--deselect={test}" for test in ignored)], timeout)
            if done.status in (0, 5):  # passed, or no test was left
                return ""
            failed = FAILED.search(done.output)
            if not failed:
                return f"pytest: {done.last_line}"
            test = failed[1]
            if not confirm or (self._pytest([test], timeout).status and self._passes_unmutated(test, timeout)):
                return test
            print(f"does not count, because it also fails without a mutant, or only now and then: {test}", flush=True)
            ignored.append(test)

    def _passes_unmutated(self, test: str, timeout: float) -> bool:
        if test not in self._passed:
            with self.holding(None):
                self._passed[test] = self._pytest([test], timeout).status == 0
        return self._passed[test]

    def _pytest(self, arguments: Sequence[str], timeout: float) -> Done:
        options = ["-x", "--tb=no", "-rfE", "--timeout=120", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", FAST]
        return self._run([sys.executable, "-m", "pytest", *options, *arguments], self.root, timeout)

    def stop(self) -> None:
        """End what is running, and start nothing more."""
        self._stopped = True
        if self._running:
            _end(self._running)

    def _run(self, command: Sequence[str], folder: Path, timeout: float) -> Done:
        """Run in a session of its own, so that nothing it started outlives it; OutOfTime after `timeout` seconds."""
        paths = [str(self.root / "workflow" / "src"), str(self.root / "tests")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",  # a mutant of the same second and size would be taken for compiled
            "PYTHONNOUSERSITE": "1",
            "TMPDIR": str(self._temporary),
        }
        if self._stopped:
            raise OutOfTime
        with tempfile.TemporaryFile("w+") as out:
            process = self._running = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=out, env=environment, start_new_session=True
            )
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired as error:
                raise OutOfTime from error
            finally:
                _end(process)
            out.seek(0)
            return Done(status, out.read())


def nearness(test: Path, mutant: Mutant) -> int:
    """How far the tests of a file are from the mutant's module: 0 to 3."""
    module = Path(mutant.file)
    package = ".".join(("scalecard", *module.parts[:-1]))
    imported = rf"^from ({package}\.{module.stem} import|{package} import .*\b{module.stem}\b)"
    if test.stem == f"test_{module.stem}":
        return 0
    if re.search(imported, test.read_text(), re.MULTILINE):
        return 1
    return 2 if test.parent.name == Path(mutant.tests).name else 3


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of the process's session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
