"""A copy of the project with a temporary folder of its own, runs of it that can be disturbed, and what these leave."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from scalecard.records.files import InvalidResult, is_result_file, load
from support.projects import SMOKE, copy_project, is_rank

LOCK = 'LOCK = Path("/tmp/scalecard.lock")'
TOKEN = "SCALECARD_FAULTS"  # an environment variable by which the processes of a workplace are found
PATIENCE = 900.0  # seconds for a run that nothing disturbs


class Unexpected(AssertionError):
    """What a fault led to, and should not have."""


@dataclass
class Workplace:
    """`lock` is the machine's lock for this campaign, so that it does not wait for other measurements."""

    base: Path
    name: str
    experiments: tuple[str, ...]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        copy_project(self.folder)
        self.temporary.mkdir()
        module = self.folder / "workflow" / "src" / "scalecard" / "hardware" / "isolation.py"
        text = module.read_text()
        assert LOCK in text
        module.write_text(text.replace(LOCK, f'LOCK = Path("{self.base / "lock"}")'))

    @property
    def folder(self) -> Path:
        return self.base / self.name

    @property
    def temporary(self) -> Path:
        return self.base / f"{self.name}-tmp"

    @property
    def log(self) -> Path:
        return self.base / f"{self.name}.log"

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[bytes]":
        """The workflow, restricted to the experiments' figures, as the leader of a process group."""
        targets = [f"results/figures/{name}.svg" for name in self.experiments]
        command = [sys.executable, "-m", "snakemake", *targets, *arguments, *SMOKE]
        own = {TOKEN: self.token, "TMPDIR": str(self.temporary), "PYTHONPATH": ""}
        with self.log.open("wb") as out:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=out,
                stderr=out,
                env={**os.environ, **own, **environment},
                start_new_session=True,
            )

    def again(self) -> list[str]:
        """Arguments that measure every experiment once more."""
        return ["--forcerun", *self.experiments]

    def complete(self, *arguments: str, **environment: str) -> str:
        """A run that nothing disturbs; what it said."""
        running = self.start(*arguments, **environment)
        with ended(running):
            if running.wait(PATIENCE):
                raise Unexpected(f"a run failed: {self.said()[-1500:]}")
        return self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def results(self) -> dict[str, bytes]:
        """The result files, each of which must be whole."""
        found = {}
        for path in sorted((self.folder / "results").glob("*/*.json")):
            if is_result_file(path):
                try:
                    load(path)
                except InvalidResult as error:
                    raise Unexpected(f"half-written: {error}") from error
                found[path.name] = path.read_bytes()
        return found

    def kept(self) -> dict[Path, list[str]]:
        """The groups of records that wait for the next run, by file, without what a kill cut short."""
        files = (self.folder / "results").glob("*/unfinished/*/process *.jsonl")
        return {path: [line for line in path.read_text().splitlines() if line.endswith("}")] for path in files}

    def result(self, name: str) -> Path:
        (path,) = (self.folder / "results").glob(f"*/{name}.json")
        return path

    def processes(self) -> list[psutil.Process]:
        """Every living process of this workplace."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(TOKEN) == self.token and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def survivors(self, patience: float = 10) -> list[str]:
        """Processes that are still alive after a while."""
        deadline = time.monotonic() + patience
        while (alive := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return [f"process {process.pid}" for process in alive]

    def left(self) -> list[str]:
        """What lies where nothing should, after a run that ended well."""
        state, results = self.folder / ".snakemake", self.folder / "results"
        found = [*self.temporary.iterdir(), *(state / "locks").glob("*"), *(state / "scalecard-running").glob("*.*")]
        found += [path for path in results.rglob(".*") if path.is_file()]
        found += results.glob("*/unfinished")
        found += Path("/dev/shm").glob("sem.scalecard-run-*")
        return [str(path) for path in found if path.name not in KEPT]

    def wait_for(self, what: Callable[[], object], running: "subprocess.Popen[bytes]", patience: float = 240) -> None:
        """Wait until something is true while the run goes on."""
        deadline = time.monotonic() + patience
        while not what():
            if running.poll() is not None or time.monotonic() > deadline:
                raise Unexpected(f"it never came so far: {self.said()[-1500:]}")
            time.sleep(0.05)

    def ranks(self) -> list[psutil.Process]:
        """The rank processes."""
        forked = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if is_rank(process):
                    forked.append(process)
        return sorted(forked, key=lambda process: process.pid)


KEPT = {f"torchinductor_{os.environ.get('USER', 'root')}", "torchinductor_root"}  # torch's cache, from run to run


@contextlib.contextmanager
def ended(running: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Whatever happens, the run's process group is gone afterwards."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
