"""One run of one experiment: alone on the machine, in fresh processes, written whole or not at all."""

import fcntl
import importlib
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO, TypeVar

from scalecard import devices, host, nodes, nvml, preflight, progress, schema, specs
from scalecard import machine as machines
from scalecard.merge import merged
from scalecard.schema import Record

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """What one process measured: the values it used, its records, its warnings."""

    spec: dict[str, Any]
    records: list[Record]
    warnings: list[str]


class ProcessLost(RuntimeError):
    """The process that measured was killed."""


def run(
    name: str, block: dict[str, Any], machine: machines.Machine, platform: str, output: Path, *, strict: bool = False
) -> None:
    """Measure and save. ValueError for a bad block; ProofFailed and RanksFailed as they come; nothing half-written.

    Of the nodes of a job only the first one saves.
    """
    job = nodes.here()
    progress.join(name, quiet=not job.leads)
    host.claim()
    environment = machines.environment(machine)
    with machine_lock(), nodes.meeting_point(job):
        disturbances = _disturbances(job, preflight.check(machine.cores, strict=strict))
        if machine.gpus:
            _in_a_fresh_process(name, devices.refuse_unusable, machine)  # a process of its own leaves no CUDA context
        started = _now()
        outcomes = list(_outcomes(name, block, machine))
        finished = _now()
    if not job.leads:
        return
    records = merged([outcome.records for outcome in outcomes])
    result = schema.Result(
        experiment=name,
        platform=platform,
        spec=outcomes[0].spec,
        environment=environment,
        started=started,
        finished=finished,
        warnings=[*disturbances, *dict.fromkeys(text for outcome in outcomes for text in outcome.warnings)],
        records=records,
    )
    schema.save(result, output)
    counts = {status: sum(r.status == status for r in records) for status in ("ok", "skipped", "failed")}
    progress.say(f"done: {', '.join(f'{count} {status}' for status, count in counts.items() if count)} -> {output}")


def _disturbances(job: nodes.Nodes, here: list[str]) -> list[str]:
    """What disturbs this node, and on the first one also the others."""
    if job.count > 1:
        job.tell("disturbances", [*here, *nodes.why_slow()])
        told = job.told("disturbances", within=nodes.TIMEOUT) if job.leads else {}
        here = [f"node {index}: {text}" for index, texts in told.items() for text in texts]
    for text in here:
        progress.say(f"warning: {text}")
    return here


def _outcomes(name: str, block: dict[str, Any], machine: machines.Machine) -> Iterator[Outcome]:
    """One fresh process after another, as many as the block's `measure.processes` says."""
    num_processes = block.get("measure", {}).get("processes", 1)
    for number in range(1, num_processes + 1):
        if num_processes > 1:
            progress.doing(f"process {number} of {num_processes}")
        yield _in_a_fresh_process(name, measure, name, block, machine)


def _in_a_fresh_process(name: str, work: Callable[..., T], *args: Any) -> T:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=host.die_with, initargs=(os.getpid(),)) as fresh:
        try:
            return fresh.submit(work, *args).result()
        except BrokenProcessPool as error:
            raise ProcessLost(f"{name}: the measuring process was killed; run the workflow again") from error


def measure(name: str, block: dict[str, Any], machine: machines.Machine) -> Outcome:
    """What a fresh process does: check the values, measure every case, and keep our own warnings."""
    progress.join(name, quiet=not nodes.here().leads)
    spec = specs.build(name, block)
    if spec.devices:
        if machine.gpus and spec.devices > len(machine.gpus):
            raise ValueError(f"devices = {spec.devices}: must be at most {len(machine.gpus)}, the GPUs that are here")
        machine = replace(machine, num_devices=spec.devices)
    experiment = importlib.import_module(f"scalecard.experiments.{name}")
    with progress.signs_of_life(name), nvml.session(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        records = list(experiment.run(spec, machine))
    said = _to_keep(caught)
    for text in said:
        progress.say(f"warning: {text}")
    return Outcome(asdict(spec), records, said)


def _to_keep(caught: list[warnings.WarningMessage]) -> list[str]:
    """The warnings meant for readers of the result: ours, not the libraries'."""
    return list(dict.fromkeys(str(w.message) for w in caught if type(w.message).__module__.startswith("scalecard")))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def machine_lock() -> Iterator[None]:
    """Hold the machine: a second workflow, or a job that outlived a killed one, must not measure at the same time."""
    with _opened() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.doing(
                f"waiting for {file.read().strip() or 'another process'}, which is measuring on this machine"
            )
            fcntl.flock(file, fcntl.LOCK_EX)
        if file.writable():
            file.seek(0)
            file.truncate()
            file.write(os.environ.get("SCALECARD_HOLDER") or f"process {os.getpid()}")
            file.flush()
        yield


def _opened() -> TextIO:
    """The lock file, which another user may have made: locking it needs no right to write."""
    try:
        return host.lock_file().open("r+")
    except PermissionError:
        return host.LOCK.open()
