"""One run of one experiment: alone on the machine, in fresh processes, its file written whole or not at all.

What was measured outlives an error: the result of an experiment that ends early has its records so far, and a failed
one that says how it ended. Only the processes that measure import PyTorch.
"""

import hashlib
import importlib
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from scalecard import experiments, progress, time_spent
from scalecard.distributed import Layout, nodes
from scalecard.distributed.nodes import RanksFailed
from scalecard.hardware import isolation, vendors
from scalecard.hardware.environment import environment, of_nodes
from scalecard.hardware.failures import in_one_line, reason_of
from scalecard.hardware.fresh_process import (
    ProcessLost,
    asked,
    in_a_fresh_process,
    start_fork_server,
)
from scalecard.hardware.host import Stopwatch
from scalecard.hardware.machine import Machine
from scalecard.measuring import shared_decisions, stopping_rule, telemetry, tracing
from scalecard.records.files import TWICE, failed_again, is_due, refuse_unsavable, save_or_keep
from scalecard.records.journal import (
    UNFINISHED,
    Journal,
    KeptGroups,
    disturbances_of,
    keep_in,
    merged,
    of_run,
    prepare_folder,
    remember_disturbances,
    remove_folder,
)
from scalecard.records.record import Record, Result
from scalecard.time_spent import Activity, spent_on

ANEW = ("health",)  # a look at this moment: no run takes over any of it from an earlier one
HARDWARE = ("fingerprint", "host", "machine")
SOFTWARE = ("python", "os", "torch", "torchvision", "cuda", "cudnn", "nccl", "lock", "container", "packages")


@dataclass(frozen=True)
class Checked:
    """The values of a Spec, and the files of the user's that it trains."""

    values: dict[str, Any]
    files: list[str]

    @property
    def num_processes(self) -> int:
        return int(self.values["measure"]["processes"])


@dataclass(frozen=True)
class Outcome:
    """What one process measured: its records, its warnings, and the seconds that it `spent` by what was done.

    If it `ended_early`, its last record says how.
    """

    records: list[Record]
    warnings: list[str]
    ended_early: bool = False
    spent: Mapping[str, float] = field(default_factory=dict)


def run(
    name: str,
    block: str,
    machine: Machine,
    platform: str,
    output: Path,
    *,
    strict: bool = False,
    seconds: int = 0,
    usual: int = 0,
    code: str = "",
) -> None:
    """Measure and save. `block` is the experiment's merged block of config.yaml, as a JSON string.

    `seconds` is about how long it may take (0: as long as it needs), and `usual` how long without such a limit. `code`
    names the code that measures: groups of records are kept beside the result until it is complete, for a next run by
    the same code; without it, none are.
    Raises ValueError for a bad block, before anything is measured. Nothing half-written is left behind. Only the first
    node of a job saves.
    """
    job = nodes.here()
    progress.join(name, quiet=not job.leads)
    isolation.claim()
    spec = asked(name, checked, name, block)
    machine = _narrowed(machine, spec.values["devices"])
    with isolation.own_folder() as folder, isolation.machine_lock(), nodes.keep_store(job):
        disturbances = _disturbances(job, machine.cores, strict=strict)
        result = _unmeasured(name, platform, spec.values, _facts(name, spec.values.get("nodes", 0), machine, job))
        result = replace(result, warnings=disturbances, budget_seconds=seconds)
        if job.leads:
            refuse_unsavable(result, output)
        watch = Stopwatch()
        stopping_rule.begin_budget(seconds, usual / spec.num_processes)
        unfinished = _unfinished(result, spec.files, job, output, code, watch.started)
        shared_decisions.begin(unfinished or folder)
        tracing.begin_traces(output.with_name("traces") / name)
        outcomes = list(_outcomes(name, block, spec.num_processes, machine, folder, unfinished, watch.started))
        watch.stop()
        if job.leads:  # while the machine is still held, as the next measurement may use the same folder
            _save(_measured(result, watch, outcomes, output, unfinished), output, spec.values["data_dir"], unfinished)


def checked(name: str, block: str) -> Checked:
    """In a process that measures: the experiment's Spec from its block; ValueError names each problem."""
    spec = experiments.build(name, block)
    return Checked(asdict(spec), [load.file for load in getattr(spec, "loads", ()) if load.file])


def _save(result: Result, output: Path, data_dir: str, unfinished: Path | None) -> None:
    """Save; groups of records are kept only if the next run will need them."""
    save_or_keep(result, output, elsewhere=_other_folders(output, data_dir))
    if unfinished and not is_due(output, 0):
        remove_folder(unfinished)
    counts = {status: result.count(status) for status in ("ok", "skipped", "failed")}
    progress.say(f"done: {', '.join(f'{count} {status}' for status, count in counts.items() if count)} -> {output}")


def _measured(
    result: Result, watch: Stopwatch, outcomes: list[Outcome], output: Path, unfinished: Path | None
) -> Result:
    """The result with what was measured, and all that is to be told of it."""
    records = merged([[of_run(record, watch.started) for record in outcome.records] for outcome in outcomes])
    said = dict.fromkeys(text for outcome in outcomes for text in outcome.warnings)
    told = [*watch.remarks, *vendors.here().collectives.remarks(result.environment["nccl_paths"]), *said]
    twice = failed_again(records, output)
    spent = {one: sum(outcome.spent.get(one, 0.0) for outcome in outcomes) for one in Activity}
    told += _told_of_earlier_runs(records, watch.started, unfinished) if unfinished else []
    return replace(
        result,
        started=watch.started,
        finished=watch.finished,
        spent={one.value: round(seconds, 2) for one, seconds in spent.items() if seconds},
        warnings=[*result.warnings, *told, *([TWICE] if twice else [])],
        failed_again=twice,
        records=records,
    )


def _told_of_earlier_runs(records: list[Record], now: str, unfinished: Path) -> list[str]:
    """That records were kept from runs before this one, if some were, and what disturbed those runs."""
    kept = [record for record in records if {*record.runs} - {now}]
    if not kept:
        return []
    runs = {run for record in kept for run in record.runs} - {now}
    told = f"{progress.counted(len(kept), 'case')} of a run before this one, which began at {min(runs)}, kept"
    progress.say(told)
    return [told, *disturbances_of(unfinished, runs)]


def _unfinished(result: Result, files: list[str], job: nodes.Nodes, output: Path, code: str, began: str) -> Path | None:
    """The folder in which groups of records are kept until the result is complete; None if they are not.

    They are not on several nodes, where all processes must measure the same.
    """
    folder = output.parent / UNFINISHED / result.experiment
    if not code or job.count > 1 or result.experiment in ANEW:
        return None
    must_be_as_it_was = {  # nothing that varies by itself
        "code": code,
        "spec": result.spec,
        "environment": {key: result.environment[key] for key in (*HARDWARE, *SOFTWARE)},
        "workloads": {file: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files},
    }
    if not prepare_folder(folder, must_be_as_it_was):
        return None
    remember_disturbances(folder, began, result.warnings)
    return folder


def _facts(name: str, num_nodes: int, machine: Machine, job: nodes.Nodes) -> dict[str, Any]:
    """The environment, with all nodes and with the way that NCCL sends between ranks on so many nodes, if on any."""
    facts = environment(machine)
    facts["nodes"] = _of_nodes(job, facts)
    if machine.gpus:
        asked(name, refuse_unusable, name, machine)
        facts["nccl_paths"] = _nccl_paths(name, num_nodes, machine)
    return facts


def refuse_unusable(name: str, machine: Machine) -> None:
    """In a fork of a process that measures, which keeps no CUDA context of it: ValueError if a GPU is unusable."""
    from scalecard.hardware.vendors import runtimes

    in_a_fresh_process(name, runtimes.refuse_unusable, machine, start="fork")


def _unmeasured(name: str, platform: str, values: dict[str, Any], facts: dict[str, Any]) -> Result:
    """The result as it is known before it is measured."""
    now = Stopwatch().started
    folder = os.path.relpath(values["data_dir"])
    if folder.startswith(os.pardir):  # such a path may name its user, and results get published
        folder = "outside the project"
    return Result(
        experiment=name,
        platform=platform,
        spec=values | {"data_dir": folder},
        environment=facts,
        started=now,
        finished=now,
        warnings=[],
        records=[],
    )


def _other_folders(output: Path, data_dir: str) -> list[Path]:
    """Where a result that its own folder does not take may be kept; a container's temporary folder ends with it."""
    inside = "SCALECARD_ENGINE" in os.environ or "APPTAINER_CONTAINER" in os.environ
    return [output.parent.parent, Path(data_dir), *([] if inside else [Path(tempfile.gettempdir())])]


def _narrowed(machine: Machine, num_devices: int | None) -> Machine:
    """The machine limited to config.yaml's `devices`; ValueError if it has fewer GPUs."""
    if not num_devices:
        return machine
    if machine.gpus and num_devices > len(machine.gpus):
        raise ValueError(f"devices = {num_devices}: must be at most {len(machine.gpus)}, the number of GPUs here")
    return replace(machine, num_devices=num_devices)


def _disturbances(job: nodes.Nodes, cores: int, *, strict: bool) -> list[str]:
    """What disturbs this node and, on the first node, the others too; our own process has begun, and waits."""
    here = telemetry.preflight(cores, strict=strict)
    if job.count > 1:
        published = job.gathered("disturbances", [*here, *vendors.why_slow()])
        here = [f"node {index}: {text}" for index, texts in published.items() for text in texts]
    for text in here:
        progress.say(f"warning: {text}")
    return here


def _of_nodes(job: nodes.Nodes, here: dict[str, Any]) -> list[dict[str, Any]]:
    """Every node of a job on the first one; empty elsewhere, and if there is one only."""
    published = job.gathered("environment", here)
    return of_nodes([*published.values()]) if published else []


def _nccl_paths(name: str, num_nodes: int, machine: Machine) -> dict[str, int]:
    """Of an experiment on ranks, one per GPU on all of its nodes; empty if there are not several."""
    if machine.num_devices * num_nodes < 2:
        return {}
    progress.doing("one start of NCCL that is not timed, to see which way it sends")
    try:
        # In a process of its own: the fork server of its ranks must end before the temporary folder is removed.
        return in_a_fresh_process(name, _started_nccl, machine, Layout(machine.num_devices * num_nodes, num_nodes))
    except RanksFailed as error:
        progress.say(f"warning: NCCL did not say which way it sends: {error}")
        return {}


def _started_nccl(machine: Machine, layout: Layout) -> dict[str, int]:
    # Not a statement: what is not measured on ranks would depend on how they are launched.
    found: dict[str, int] = importlib.import_module("scalecard.distributed.launch").transport_paths(machine, layout)
    return found


def _outcomes(
    name: str, block: str, num_processes: int, machine: Machine, folder: Path, unfinished: Path | None, started: str
) -> Iterator[Outcome]:
    """The outcomes of so many fresh processes, one after another, until one ends early or has nothing to measure.

    Each goes on with the groups that its file in `unfinished` has.
    """
    longest = 0.0
    for number in range(1, num_processes + 1):
        began = time.monotonic()
        if stopping_rule.budget_left() < longest:
            told = f"measured in {number - 1} of {num_processes} fresh processes: {stopping_rule.OVER}"
            progress.say(f"warning: {told}")
            yield Outcome([], [told])
            return
        if num_processes > 1:
            progress.doing(f"process {number} of {num_processes}")
        shared_decisions.begin_process(number)
        kept = KeptGroups(unfinished / f"process {number}.jsonl", started) if unfinished else None
        outcome = _outcome(name, block, machine, Journal(folder / f"records of process {number}"), kept)
        yield outcome
        if outcome.ended_early or all(record.status == "skipped" for record in outcome.records):
            return
        longest = max(longest, time.monotonic() - began)


def _outcome(name: str, block: str, machine: Machine, journal: Journal, kept: KeptGroups | None = None) -> Outcome:
    """What a fresh process measured, also if it was killed."""
    try:
        return in_a_fresh_process(name, measure, name, block, machine, journal, kept, early=True)
    except ProcessLost as error:
        return _ended_early(error, journal)


def _ended_early(error: Exception, journal: Journal) -> Outcome:
    """The records so far, and one without axes that says how the experiment ended."""
    progress.say(f"ended early: {in_one_line(error)}")
    how = Record.failed({}, f"the experiment ended early: {in_one_line(error)}", reason=reason_of(error))
    return Outcome([*journal.read(), how], [], ended_early=True)


def measure(name: str, block: str, machine: Machine, journal: Journal, kept: KeptGroups | None = None) -> Outcome:
    """What a fresh process does: measure each case of a block that is not `kept`, and keep it, and our own warnings."""
    progress.inherit(quiet=not nodes.here().leads)
    keep_in(kept)
    experiment, spec = experiments.load(name), experiments.build(name, block)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with spent_on(Activity.LAUNCH):
                start_fork_server()  # before there are threads
            with progress.signs_of_life(), vendors.session():
                outcome = Outcome(journal.keep(experiment.run(spec, machine)), [])
        except Exception as error:
            if not isinstance(error, ValueError):  # those are for users and explain themselves
                traceback.print_exc()
            elif not nodes.here().leads:
                print(error, file=sys.stderr)  # nothing else that this node says is shown
            outcome = _ended_early(error, journal)
    ours = _our_own(caught)
    for text in ours:
        progress.say(f"warning: {text}")
    return replace(outcome, warnings=ours, spent=time_spent.take())


def _our_own(caught: list[warnings.WarningMessage]) -> list[str]:
    """The warnings meant for readers of the result: ours, not the libraries'."""
    return list(dict.fromkeys(str(w.message) for w in caught if type(w.message).__module__.startswith("scalecard")))
