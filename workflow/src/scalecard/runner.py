"""One run of one experiment: alone on the machine, warnings kept, the result written whole or not at all."""

import fcntl
import importlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scalecard import machine as machines
from scalecard import progress, schema, specs

LOCK = Path(tempfile.gettempdir(), "scalecard.lock")


def run(name: str, block: dict[str, Any], machine: machines.Machine, platform: str, output: Path) -> None:
    """Measure and save. ValueError for a bad block; ProofFailed and RanksFailed as they come; nothing half-written."""
    spec = specs.build(name, block)
    environment = machines.environment(machine)
    if spec.devices:
        machine = replace(machine, num_devices=spec.devices)
    experiment = importlib.import_module(f"scalecard.experiments.{name}")
    with progress.signs_of_life(name), machine_lock(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = _now()
        records = list(experiment.run(spec, machine))
        finished = _now()
    said = _to_keep(caught)
    for text in said:
        progress.say(f"warning: {text}")
    result = schema.Result(
        experiment=name,
        platform=platform,
        spec=asdict(spec),
        environment=environment,
        started=started,
        finished=finished,
        warnings=said,
        records=records,
    )
    schema.save(result, output)
    counts = {status: sum(r.status == status for r in records) for status in ("ok", "skipped", "failed")}
    progress.say(f"done: {', '.join(f'{count} {status}' for status, count in counts.items() if count)} -> {output}")


def _to_keep(caught: list[warnings.WarningMessage]) -> list[str]:
    """The warnings meant for readers of the result: ours, not the libraries'."""
    return list(dict.fromkeys(str(w.message) for w in caught if type(w.message).__module__.startswith("scalecard")))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def machine_lock() -> Iterator[None]:
    """Hold the machine: a second workflow, or a job that outlived a killed one, must not measure at the same time."""
    handle = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    with os.fdopen(handle, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.doing(
                f"waiting for {file.read().strip() or 'another process'}, which is measuring on this machine"
            )
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()}")
        file.flush()
        yield
