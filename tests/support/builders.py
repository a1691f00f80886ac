"""Records and telemetry with plausible values; keyword arguments change what a test is about."""

import random
import uuid
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from typing import Any

from scalecard.hardware.environment import environment
from scalecard.hardware.machine import Machine, probe
from scalecard.records.axes import Case
from scalecard.records.journal import merged
from scalecard.records.record import GpuState, HardwareState, Reason, Record, Spread, Telemetry


@cache
def here() -> dict[str, Any]:
    """This machine's environment: git and the packages' metadata take 20 ms to ask, and say the same in every test."""
    return environment(probe())


def environment_of(machine: Machine) -> dict[str, Any]:
    """What a result says of such a machine, whose GPUs no driver describes."""
    facts = {"fingerprint": machine.fingerprint, "emulated": machine.emulated, "machine": asdict(machine)}
    return {**deepcopy(here()), **facts}


def gpu_state(**changes: Any) -> GpuState:
    """A GPU under load that nothing disturbs."""
    facts: dict[str, Any] = {
        "sm_clock_mhz": Spread(low=1200, median=1900, high=1980),
        "temperature_c": Spread(low=41, median=55, high=61),
        "power_w": Spread(low=90.5, median=350.0, high=412.25),
        "others_memory_bytes": 0,
        "pcie_gen": 5,
        "pcie_width": 16,
        "reasons": {},
    }
    return GpuState(**{**facts, **changes})


def hardware_state(*gpus: GpuState, **changes: Any) -> HardwareState:
    """These GPUs, and a CPU that nothing disturbs."""
    facts: dict[str, Any] = {
        "seconds": 2.5,
        "readings": 12,
        "sampler_cost": 0.002,
        "load_average": 1.5,
        "cpu_mhz": Spread(low=2000, median=2400, high=3100),
        "cpu_busy": 0.4,
        "steal": 0.0,
        "missing": {},
    }
    return HardwareState(**{**facts, **changes}, gpus=list(gpus))


def out_of_memory(case: Case, note: str = "2 GiB are too many", metric: str = "time", unit: str = "s") -> Record:
    """What did not fit."""
    return Record.failed(case, note, reason=Reason.OUT_OF_MEMORY, metric=metric, unit=unit)


def timed(*processes: Sequence[float], rounds_id: str = "rounds", metric: str = "time", **case: Any) -> Record:
    """Samples of one or more processes, in seconds; variants that share a `rounds_id` can be paired."""
    return Record(
        case=case,
        metric=metric,
        unit="s",
        samples=[list(samples) for samples in processes],
        telemetry=[Telemetry(rounds_id=f"{rounds_id} {number}") for number, _ in enumerate(processes)],
    )


def copy_case(ends: tuple[str | int, str | int], size: int) -> Case:
    """Of `copy_cost`: pinned memory, without blocking, from the first end to the second."""
    source, target = ends
    own: Case = {"source": source, "target": target, "bytes": size}
    return {"part": "matrix", **own, "memory": "pinned", "call": "non_blocking"}


def repeated(seconds: float, *, processes: int = 3, spread: float = 0.002, **case: Any) -> Record:
    """Processes of 30 samples about a time, each in rounds of its own: `spread` between them, 0.002 within."""
    draw = random.Random(str([seconds, processes, spread, case]))
    own, runs = case or {"mode": "single"}, []
    for _ in range(processes):
        middle = seconds * draw.gauss(1, spread)
        samples = [middle * draw.gauss(1, 0.002) for _ in range(30)]
        runs.append([timed(samples, rounds_id=uuid.uuid4().hex, **own)])
    return merged(runs)[0]
