"""One run of one experiment: alone on the machine, in fresh processes, its result written whole or not at all."""

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from scalecard import experiments, progress
from scalecard.distributed import nodes
from scalecard.hardware import devices, network, nvml, processes, scratch
from scalecard.hardware.clock import Stopwatch
from scalecard.hardware.environment import environment
from scalecard.hardware.lock import machine_lock
from scalecard.hardware.machine import Machine
from scalecard.measuring import preflight
from scalecard.records.again import failed_again
from scalecard.records.anonymous import anonymous
from scalecard.records.files import save
from scalecard.records.merge import merged
from scalecard.records.record import Record, Result

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """What one process measured: its records and its warnings."""

    records: list[Record]
    warnings: list[str]


class ProcessLost(RuntimeError):
    """The measuring process was killed."""


def run(name: str, block: str, machine: Machine, platform: str, output: Path, *, strict: bool = False) -> None:
    """Measure and save. `block` is the experiment's merged block of config.yaml, as a JSON string.

    Raises ValueError for a bad block; ProofFailed and RanksFailed pass through. Nothing half-written is left behind.
    Only the first node of a job saves.
    """
    job = nodes.here()
    progress.join(name, quiet=not job.leads)
    processes.claim()
    spec = experiments.build(name, block)
    machine = _narrowed(machine, spec.devices)
    facts = environment(machine)
    with scratch.own_folder(), machine_lock(), nodes.keep_store(job):
        disturbances = _disturbances(job, preflight.check(machine.cores, strict=strict))
        if machine.gpus:
            _in_a_fresh_process(name, devices.refuse_unusable, machine)  # so that this one keeps no CUDA context
        watch = Stopwatch()
        outcomes = list(_outcomes(name, spec, machine))
        watch.stop()
    if not job.leads:
        return
    records = [replace(r, note=anonymous(r.note)) for r in merged([outcome.records for outcome in outcomes])]
    result = Result(
        experiment=name,
        platform=platform,
        spec=asdict(spec),
        environment=facts,
        started=watch.started,
        finished=watch.finished,
        warnings=[
            *map(anonymous, [*disturbances, *watch.remarks, *_warnings(outcomes)]),
            *failed_again(records, output),
        ],
        records=records,
    )
    save(result, output)
    counts = {status: result.count(status) for status in ("ok", "skipped", "failed")}
    progress.say(f"done: {', '.join(f'{count} {status}' for status, count in counts.items() if count)} -> {output}")


def _narrowed(machine: Machine, num_devices: int | None) -> Machine:
    """The machine limited to config.yaml's `devices`; ValueError if it has fewer GPUs."""
    if not num_devices:
        return machine
    if machine.gpus and num_devices > len(machine.gpus):
        raise ValueError(f"devices = {num_devices}: must be at most {len(machine.gpus)}, the number of GPUs here")
    return replace(machine, num_devices=num_devices)


def _disturbances(job: nodes.Nodes, here: list[str]) -> list[str]:
    """What disturbs this node and, on the first node, the others too."""
    if job.count > 1:
        job.publish("disturbances", [*here, *network.why_slow()])
        published = job.collect("disturbances", within=nodes.TIMEOUT) if job.leads else {}
        here = [f"node {index}: {text}" for index, texts in published.items() for text in texts]
    for text in here:
        progress.say(f"warning: {text}")
    return here


def _outcomes(name: str, spec: Any, machine: Machine) -> Iterator[Outcome]:
    """The outcomes of `measure.processes` fresh processes, one after another."""
    for number in range(1, spec.measure.processes + 1):
        if spec.measure.processes > 1:
            progress.doing(f"process {number} of {spec.measure.processes}")
        yield _in_a_fresh_process(name, measure, name, spec, machine)


def _in_a_fresh_process(name: str, work: Callable[..., T], *args: Any) -> T:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=processes.die_with, initargs=(os.getpid(),)) as fresh:
        try:
            return fresh.submit(work, *args).result()
        except BrokenProcessPool as error:
            raise ProcessLost(f"{name}: the measuring process was killed; run the workflow again") from error


def measure(name: str, spec: Any, machine: Machine) -> Outcome:
    """What a fresh process does: measure every case of a Spec, and keep our own warnings."""
    progress.inherit(quiet=not nodes.here().leads)
    experiment = experiments.load(name)
    with progress.signs_of_life(), nvml.session(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        records = list(experiment.run(spec, machine))
    ours = _our_own(caught)
    for text in ours:
        progress.say(f"warning: {text}")
    return Outcome(records, ours)


def _our_own(caught: list[warnings.WarningMessage]) -> list[str]:
    """The warnings meant for readers of the result: ours, not the libraries'."""
    return list(dict.fromkeys(str(w.message) for w in caught if type(w.message).__module__.startswith("scalecard")))


def _warnings(outcomes: list[Outcome]) -> list[str]:
    """Those of all processes, each once."""
    return list(dict.fromkeys(text for outcome in outcomes for text in outcome.warnings))
