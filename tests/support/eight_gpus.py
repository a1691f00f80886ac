"""Made-up results of 8 GPUs whose truth is known: what is fastest, where scaling collapses, what to avoid.

One device takes 10 ms, and 90 ms for 64 samples or its share of them. Exchanging gradients adds 3, 5 and 8 ms on 2, 4
and 8 devices. So DDP is 2.67x as fast on 4 devices (16 samples on each: 67 % efficient), and 3.42x on 8 (8 on each:
43 %); one device alone works at 59 % of its rate with 8 samples, and at 40 % with 4.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from scalecard.analysis.platforms import PlatformResults
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result, Telemetry

from support.builders import out_of_memory

BATCH, DEVICES = 64, (2, 4, 8)
EXCHANGE = {1: 0.0, 2: 0.003, 4: 0.005, 8: 0.008}
GIB = 2.0**30
MEMORY = {"single device": 20, "DDP": 20, "FSDP gradients": 16, "FSDP parameters": 10}  # GiB
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB."


def local(batch: float) -> float:
    """Seconds of a step of one device."""
    return 0.010 + 0.090 * batch / BATCH


def samples(seconds: float, *, noise: float = 0.002, seed: object = "") -> list[list[float]]:
    """Three processes of 20."""
    draw = random.Random(str((seconds, seed)))
    return [[seconds * draw.gauss(1, noise) for _ in range(20)] for _ in range(3)]


def timed(case: Case, seconds: float, rounds: str, *, metric: str = "step_time", noise: float = 0.002) -> Record:
    """A record of the rounds of that name."""
    telemetry = [Telemetry(rounds_id=f"{rounds} {process}", joules=2.0) for process in range(3)]
    taken = samples(seconds, noise=noise, seed=sorted(map(str, case.values())))
    return Record(case=case, metric=metric, unit="s", samples=taken, telemetry=telemetry)


def case_of(strategy: str, devices: int, scaling: str = "strong", *, workload: str = "gpt") -> Case:
    size = BATCH * (devices if scaling == "weak" else 1)
    case: Case = {"workload": workload, "devices": devices, "strategy": strategy, "scaling": scaling}
    return {**case, "batch_size": size, "unit": "samples", "units": size}


def step(
    strategy: str,
    devices: int,
    seconds: float,
    scaling: str = "strong",
    *,
    workload: str = "gpt",
    noise: float = 0.002,
) -> Record:
    """A strategy's step; those of as many devices share their rounds."""
    case = case_of(strategy, devices, scaling, workload=workload)
    return timed(case, seconds, f"{workload} {devices}", noise=noise)


def too_large(strategy: str, devices: int, *, workload: str = "gpt") -> Record:
    return out_of_memory(case_of(strategy, devices, workload=workload), OUT_OF_MEMORY, metric="step_time")


def of_devices(devices: int) -> list[Record]:
    """Every strategy on so many devices."""
    ddp = local(BATCH / devices) + EXCHANGE[devices]
    return [
        step("DDP", devices, ddp),
        step("FSDP gradients", devices, 1.15 * ddp),
        step("FSDP parameters", devices, 1.3 * ddp),
        step("DDP", devices, local(BATCH) + EXCHANGE[devices], "weak"),
        step("DataParallel", devices, 0.1 / {2: 1.2, 4: 1.35, 8: 1.41}[devices]),
        step("model parallel", devices, 0.104),
    ]


def strategies() -> list[Record]:
    """All records of the truth above."""
    alone = [
        timed(
            {"workload": "gpt", "devices": 1, "batch_size": size, "unit": "samples", "units": size},
            local(size),
            "gpt 1",
            metric="local_time",
        )
        for size in (64, 32, 16, 8, 4)
    ]
    steps = [step("single device", 1, local(BATCH)), *(record for count in DEVICES for record in of_devices(count))]
    memory = [
        Record(case=record.case, metric="peak_memory", unit="B", samples=[[GIB * MEMORY[str(record.case["strategy"])]]])
        for record in steps
        if record.case["strategy"] in MEMORY
    ]
    return [*steps, *alone, *memory]


def ddp(options: dict[str, tuple[int, float]], *, devices: int = 8) -> list[Record]:
    """ResNet-18's options by name, with the batches per step and the seconds of a step; scaling over one device."""
    case: Case = {"workload": "resnet18", "devices": devices}
    found = [
        timed({**case, "option": name, "batch_size": 256, "steps": count}, seconds, "options")
        for name, (count, seconds) in options.items()
    ]
    found += [
        timed({**case, "strategy": strategy, "batch_size": 256}, seconds, "one process")
        for strategy, seconds in {"DDP": 0.02, "by hand": 0.025, "DataParallel": 0.05}.items()
    ]
    scaled = [("plain", 1, 0.1), ("strong", 1, 0.101), ("strong", devices, 0.02), ("weak", devices, 0.11)]
    for scaling, count, seconds in scaled:
        size = 256 * (count if scaling == "weak" else 1)
        own: Case = {"workload": "resnet18", "devices": count, "scaling": scaling, "batch_size": size}
        found.append(timed(own, seconds, f"scaling {count}"))
    return found


def on_gpus(result: Result, experiment: str) -> Result:
    """The result as one of that experiment, measured on GPUs."""
    return replace(result, experiment=experiment, environment={**result.environment, "emulated": False})


def measured(
    make_result: Callable[..., Result], spec: dict[str, object] | None = None, **records: Sequence[Record]
) -> PlatformResults:
    """Results by experiment, of GPUs."""
    return PlatformResults(
        {
            name: on_gpus(make_result(list(own), spec=spec or {"models": ["resnet18"]}), name)
            for name, own in records.items()
        }
    )
