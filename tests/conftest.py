"""What the tests share: this machine, a fast measuring rule, result files, fake GPUs, and the command line.

Plain functions that tests share are in support/.
"""

import dataclasses
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NamedTuple

# OpenMP's threads sleep while they wait for work. By default they spin, which costs several times as much CPU time and
# slows down the tests beside them. The variable is read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
from scalecard.hardware import device_timestamps
from scalecard.hardware.machine import Machine, probe
from scalecard.jobs.containers import launch
from scalecard.measuring.stopping_rule import Rule
from scalecard.records import files
from scalecard.records.record import Record, Result
from support.blocks import SHORTEST, block
from support.builders import environment_of, here, repeated
from support.fake_nvml import Board, FakeNvml

# Where most tests launch ranks or train.
RANKS = ("benchmarks", "distributed", "experiments", "parallel", "test_run.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Their marker: they are not for every edit."""
    for item in items:
        if item.path.relative_to(Path(__file__).parent).parts[0] in RANKS:
            item.add_marker(pytest.mark.ranks)


@pytest.fixture
def machine() -> Machine:
    return probe()


@pytest.fixture
def rule() -> Rule:
    return Rule(
        warmup_seconds=0,
        block_seconds=0,
        min_rounds=6,
        max_rounds=40,
        min_seconds=0,
        max_seconds=5,
        precision=0.01,
        processes=1,
    )


@pytest.fixture(scope="session")
def described() -> None:
    """Before any test pretends to be elsewhere."""
    here()


@pytest.fixture
def make_result(described: None, machine: Machine) -> Callable[..., Result]:
    """A result of this machine with these records; keyword arguments change its other fields."""

    def make(records: list[Record], **changes: Any) -> Result:
        facts: dict[str, Any] = {
            "experiment": "async_timing",
            "platform": "box",
            "spec": {},
            "environment": environment_of(machine),
            "started": "2026-01-01T00:00:00.000+00:00",
            "finished": "2026-01-01T00:01:00.000+00:00",
            "warnings": [],
        }
        return Result(**{**facts, **changes}, records=records)

    return make


@pytest.fixture
def save_result(tmp_path: Path, make_result: Callable[..., Result]) -> Callable[..., Path]:
    """Write a result file of a platform under results/ in tmp_path; keyword arguments change its machine's facts."""

    def save(platform: str, *records: Record, spec: dict[str, Any] | None = None, **facts: Any) -> Path:
        result = make_result(list(records), platform=platform, spec=spec or {})
        changed = {**result.environment, "machine": {**result.environment["machine"], **facts}}
        if facts:
            changed["fingerprint"] = platform
        path = tmp_path / "results" / platform / f"{result.experiment}.json"
        files.save(dataclasses.replace(result, environment=changed), path)
        return path

    return save


@pytest.fixture
def no_free_events() -> Iterator[None]:
    """Events that a test made up are not used again by others, and theirs not by it."""
    device_timestamps._free.clear()
    yield
    device_timestamps._free.clear()


@pytest.fixture
def two_platforms(save_result: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of 'old' and of 'new', which is a tenth slower."""
    save_result("old", repeated(1.0))
    save_result("new", repeated(1.1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def install_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNvml]:
    """Put a fake NVML with these boards in the place of the real one."""

    def install(boards: list[Board], **options: Any) -> FakeNvml:
        fake = FakeNvml(boards, **options)
        monkeypatch.setattr("scalecard.hardware.vendors.nvidia.nvml.pynvml", fake)
        monkeypatch.setattr("scalecard.measuring.telemetry.LOOK", 0.05)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return fake

    return install


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where InfiniBand's adapters would be: none, unless a test makes some."""
    monkeypatch.setattr("scalecard.hardware.vendors.nvidia.nccl.ADAPTERS", tmp_path)
    return tmp_path


class _Inline:
    """An executor that works in this process, where the fake NVML is."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def __enter__(self) -> "_Inline":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *args: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*args))
        return done


@pytest.fixture
def run_as_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Run an experiment in this process, on CPU workers in the place of the fake GPUs, and load what it saved."""
    from scalecard.hardware.devices import CpuDevice
    from scalecard.run import run

    for name in (
        "SCALECARD_ROOT_PID",
        "SCALECARD_PREFIX",
        "SCALECARD_DEADLINE",
        "SCALECARD_PACE",
        "SCALECARD_DECISIONS",
        "SCALECARD_PROCESS",
    ):
        monkeypatch.setenv(name, "")  # the run sets them, and the test's end unsets them
    monkeypatch.setattr("scalecard.hardware.fresh_process.ProcessPoolExecutor", _Inline)
    monkeypatch.setattr("scalecard.hardware.isolation.LOCK", tmp_path / "lock")
    monkeypatch.setattr("scalecard.hardware.devices.GpuDevice", lambda device: CpuDevice(device.index, 1))
    monkeypatch.setattr("scalecard.hardware.vendors.runtimes.refuse_unusable", lambda machine: None)

    def run_and_load(name: str, *, strict: bool = False, seconds: int = 0, **changes: Any) -> Result:
        found = probe()
        path = tmp_path / "results" / found.slug / f"{name}.json"
        values = {"measure": SHORTEST, "devices": 2, **changes}
        run(name, block(name, "quick", **values), found, found.slug, path, strict=strict, seconds=seconds)
        return files.load(path)

    return run_and_load


@pytest.fixture(scope="session")
def forked_ranks() -> Iterator[None]:
    """Ranks are forked from a server that has loaded and changed what support/forked_ranks.py says.

    Starting it costs several seconds, so it stays for all tests after the first that needs it.
    """
    server = forkserver._forkserver  # type: ignore[attr-defined]
    server._stop()  # CPython's own tests do so
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        multiprocessing.set_forkserver_preload(["support.forked_ranks"])
        forkserver.ensure_running()
    yield
    server._stop()


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The synthetic data set is small, and quick to make."""
    from scalecard.workloads import datasets

    monkeypatch.setattr(datasets, "synthetic", partial(datasets.synthetic, num_train=512, num_test=128))


@pytest.fixture
def fake_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a shell script in the place of a container engine; of the machine's own engines none is found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    for engine, (_, *question) in launch.QUESTION.items():
        monkeypatch.setitem(launch.QUESTION, engine, (str(folder / engine), *question))

    def put(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    return put


class Done(NamedTuple):
    """What a command left."""

    status: int
    out: str
    err: str


@pytest.fixture
def scalecard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command of the command line in this process."""
    from scalecard.cli.commands import main

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["scalecard", *map(str, arguments)])
        capsys.readouterr()
        return Done(main(), *capsys.readouterr())

    return call
