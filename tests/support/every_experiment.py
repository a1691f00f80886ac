"""A result of every experiment on a platform, with the cases and settings of real ones and samples drawn at random."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from scalecard.hardware.machine import Machine, probe
from scalecard.records.axes import PRINTED, Case
from scalecard.records.record import Check, Count, Record, Result, Telemetry

from support.blocks import block
from support.builders import environment_of, gpu_state, hardware_state
from support.health_boxes import Extent, health_cases

Settings = dict[str, Any]
Kind = tuple[str, Case]  # a metric and a case

IN_TURN = ("as printed", "synchronised", "resident", "concise")  # with each other, epochs of the hand-written way
CUTS = ("after layer2", "balanced")
CODE = {"commit": "c0ffee" * 6 + "beef", "dirty": False}
GPU = {
    "name": "NVIDIA A100-SXM4-40GB",
    "memory_bytes": 40 * 2**30,
    **{"pcie_gen": 4, "pcie_gen_max": 4, "pcie_width": 16, "pcie_width_max": 16},
    "nvlinks": 12,
    "power_limit_w": 400.0,
    "power_limit_max_w": 400.0,
    "sm_clock_max_mhz": 1410,
    "memory_clock_max_mhz": 1215,
    "ecc": True,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "numa_node": 0,
    "cores": "0-31",
}


def every_result(
    platform: str, *, gpus: int = 0, processes: int = 1, rounds: int = 7, scale: str = "quick", day: int = 1
) -> list[Result]:
    """One per experiment, each with as many samples of as many processes; a platform has the same ones every time."""
    draw, facts = random.Random(platform), described(machine_named(platform, gpus), gpus)
    return [
        Result(
            experiment=name,
            platform=platform,
            spec=settings(name, scale),
            environment=facts,
            started=f"2026-01-{day:02}T00:00:00.000+00:00",
            finished=f"2026-01-{day:02}T00:10:00.000+00:00",
            warnings=["the data set is synthetic"],
            records=list(map(partial(_measured, draw, processes, rounds, gpus), kinds(settings(name, scale)))),
        )
        for name, kinds in {**KINDS, "health": partial(_health, gpus)}.items()
    ]


def machine_named(name: str, gpus: int) -> Machine:
    """A machine with this many GPUs, told from others by its CPU."""
    names, hashes = [GPU["name"]] * gpus, [f"{name} {index}" for index in range(gpus)]
    kind, driver = ("cuda", "580.1") if gpus else ("cpu", None)
    return replace(
        probe(), cpu=f"CPU {name}", kind=kind, gpus=names, gpu_uuid_hashes=hashes, driver=driver, num_devices=gpus or 2
    )


def described(machine: Machine, gpus: int) -> dict[str, Any]:
    """What a result says of it; neither a driver nor git is asked."""
    links = [[None if a == b else 20 for b in range(gpus)] for a in range(gpus)]
    nvlinks = [[None if a == b else GPU["nvlinks"] for b in range(gpus)] for a in range(gpus)]
    details = [{**GPU, "uuid_hash": name} for name in machine.gpu_uuid_hashes]
    hardware = {"gpus": details, "topology": links, "nvlink_pairs": nvlinks}
    return {**environment_of(machine), **hardware, **CODE}


def settings(name: str, scale: str) -> Settings:
    """An experiment's merged block of config.yaml."""
    found: Settings = json.loads(block(name, scale))
    return found


def _measured(draw: random.Random, processes: int, rounds: int, gpus: int, kind: Kind) -> Record:
    metric, case = kind
    if metric in UNITS:
        samples = VALUES[metric]
        return Record(case=case, metric=metric, unit=UNITS[metric], samples=[samples] * processes)
    if metric == "peak_memory":
        return Record.skipped(case, "CPU workers share the host's memory", metric=metric, unit="B")
    if metric == "accuracy":
        return Record(case=case, metric=metric, unit="fraction", samples=[[0.1, 0.5, 0.8]] * processes)
    middle = 0.01 * draw.lognormvariate(0, 0.5)
    return Record(
        case=case,
        metric=metric,
        unit="s",
        samples=[[middle * draw.lognormvariate(0, 0.02) for _ in range(rounds)] for _ in range(processes)],
        checks=[Check(name="parameters after 3 steps", dtype="float64", difference=1e-17, tolerance=1e-10)],
        work=[Count(name="FLOPs", counted=2.0e9, expected=2.0e9, unit="FLOP")],
        telemetry=[
            Telemetry(rounds_id=f"process {number}", stopped=f"{rounds} rounds", state=_state(gpus))
            for number in range(processes)
        ],
    )


def _state(gpus: int) -> Any:
    return hardware_state(*[gpu_state()] * gpus)


def _async_timing(spec: Settings) -> Iterator[Kind]:
    shared: Case = {"products": spec["products"]}
    for dtype, size in product(spec["dtypes"], dict.fromkeys([*spec["sizes"], spec["size"]])):
        for metric in ("enqueue_time", "time"):
            yield metric, {"mode": "single", "devices": 1, "dtype": dtype, "size": size, **shared}
    for mode, devices in product(("serial", "concurrent"), (1, 2)):
        yield "time", {"mode": mode, "devices": devices, "dtype": "float32", "size": spec["size"], **shared}


def _copy_cost(spec: Settings) -> Iterator[Kind]:
    for step in ("compute", "copy", "compute, then copy", "non-blocking", "overlapped"):
        yield "time", {"part": "textbook", "bytes": 2**20, "step": step}
    for source, target in (("host", 0), (0, "host"), (0, 0), (0, 1)):
        for memory, call, size in product(spec["memory"], spec["calls"], spec["bytes"]):
            case: Case = {"part": "matrix", "source": source, "target": target, "bytes": size}
            case |= {"memory": memory, "call": call}
            yield "enqueue_time", case
            yield "time", case


def _allreduce(spec: Settings) -> Iterator[Kind]:
    for algorithm in ("naive", "ring"):
        yield "time", {"algorithm": algorithm, "devices": 2, "bytes": 8, "textbook": True}
    for algorithm, size in product(("naive", "ring", "torch.distributed"), spec["bytes"]):
        backend: Case = {"backend": "gloo"} if algorithm == "torch.distributed" else {}
        yield "time", {"algorithm": algorithm, "devices": 2, "bytes": size, **backend}


def _dp_scratch(spec: Settings) -> Iterator[Kind]:
    for metric, devices in product(("epoch_time", "accuracy"), (1, 2)):
        case: Case = {"devices": devices, "batch_size": spec["batch_size"], "lr": spec["lr"], "data": "synthetic"}
        yield metric, case
        for way in IN_TURN if metric == "epoch_time" and devices in spec["as_printed"] else ():
            yield metric, {**case, "way": way}


def _dp_concise(spec: Settings) -> Iterator[Kind]:
    for metric, devices, batch, lr in product(("epoch_time", "accuracy"), (1, 2), spec["batch_sizes"], spec["lrs"]):
        yield (
            metric,
            {"workload": spec["model"], "devices": devices, "batch_size": batch, "lr": lr, "data": "synthetic"},
        )
    for way in ("loaded", "resident"):
        at: Case = {"devices": 1, "batch_size": spec["batch_sizes"][0], "lr": spec["lrs"][0], "way": way}
        yield "epoch_time", {"workload": spec["model"], **at, "data": "synthetic"}
    small, large = ({"batch_size": spec["batch_sizes"][n], "lr": spec["lrs"][n]} for n in (0, -1))
    runs = ((PRINTED, "not lazy", small), (PRINTED, "all", small), (spec["model"], "all", small))
    for name, start, own in (*runs, (PRINTED, "second run", small), (PRINTED, "second run", large)):
        yield "accuracy", {"workload": name, "devices": 1, **own, "data": "synthetic", "start": start}


def _ddp(spec: Settings) -> Iterator[Kind]:
    for model in spec["models"]:
        for scaling, devices in product(("strong", "weak"), (1, 2)):
            if (scaling, devices) != ("weak", 1):
                yield "step_time", {"workload": model, "devices": devices, "scaling": scaling, "batch_size": 8}
        for option in ("default", "no_sync", "all-reduce alone", "bucket 1 MiB", "fp16 hook", "accumulate 4"):
            steps = 4 if option == "accumulate 4" else 1
            yield "step_time", {"workload": model, "devices": 2, "option": option, "batch_size": 8, "steps": steps}
        for strategy in ("DDP", "by hand", "DataParallel"):
            yield "step_time", {"workload": model, "devices": 2, "strategy": strategy, "batch_size": 8}
    for metric, model in product(("epoch_time", "accuracy"), spec["accuracy_models"]):
        yield metric, {"workload": model, "devices": 2, "data": "synthetic", "batch_size": 32, "lr": 0.2}


def _model_parallel(spec: Settings) -> Iterator[Kind]:
    resnet: Case = {"workload": spec["model"], "batch_size": spec["batch_size"], "image_size": spec["image_size"]}
    shared: Case = {**resnet, "batches": spec["batches"]}
    for strategy in ("single device", "model parallel"):
        yield "step_time", {"workload": "toy", "strategy": strategy, "batch_size": spec["toy_batch_size"]}
    for number in range(18):
        yield "block_time", {**resnet, "block": number}
    for metric in ("step_time", "tutorial_time"):
        yield metric, {**shared, "strategy": "single device"}
    yield "tutorial_time", {**shared, "strategy": "model parallel", "devices": 2, "cut": CUTS[0]}
    for cut in CUTS:
        own: Case = {**shared, "devices": 2, "cut": cut}
        yield "step_time", {**own, "strategy": "model parallel"}
        for stage in (0, 1):
            yield "step_time", {**own, "strategy": "stage alone", "stage": stage}
    yield "peak_memory", {"workload": spec["model"]}


def _pipeline(spec: Settings) -> Iterator[Kind]:
    shared: Case = {"workload": spec["model"], "batch_size": spec["batch_size"], "image_size": spec["image_size"]}
    for metric in ("step_time", "tutorial_time"):
        yield metric, {"strategy": "single device", **shared}
        yield metric, {"strategy": "model parallel", **shared, "devices": 2, "cut": CUTS[0]}
    for size in spec["split_sizes"]:
        yield "tutorial_time", {"strategy": "textbook", "split_size": size, **shared, "devices": 2, "cut": CUTS[0]}
    for name, size in product(("textbook", "gpipe", "1f1b"), spec["split_sizes"]):
        yield "step_time", {"strategy": name, "split_size": size, **shared, "devices": 2, "cut": CUTS[0]}
    for name, size in product(("torch gpipe", "torch 1f1b"), spec["split_sizes"]):
        yield "step_time", {"strategy": name, "library": True, "split_size": size, **shared}
    for name, size in product(("gpipe", "1f1b"), spec["balanced_sizes"]):
        yield "step_time", {"strategy": name, "split_size": size, **shared, "beside": f"torch {name}"}
        yield "step_time", {"strategy": name, "split_size": size, **shared, "devices": 2, "cut": CUTS[1]}
        for metric, cut in product(("played_time", "played_bubble"), CUTS):
            yield metric, {"strategy": name, "split_size": size, **shared, "devices": 2, "cut": cut}
    for cut, stage in product(CUTS, (0, 1)):
        own: Case = {"stage": stage, **shared, "devices": 2, "cut": cut}
        yield "stage_time", {**own, "part": "update"}
        for part, size in product(("forward", "forward and backward"), spec["balanced_sizes"]):
            yield "stage_time", {**own, "split_size": size, "part": part}


def _hybrid(spec: Settings) -> Iterator[Kind]:
    shared: Case = {"image_size": spec["image_size"], "batch_size": spec["batch_size"]}
    for strategy, ranks in (("model parallel", 1), ("hybrid", 2), ("DDP", 2)):
        yield (
            "step_time",
            {"workload": spec["model"], "strategy": strategy, "ranks": ranks, "devices": 2 * ranks, **shared},
        )


def _strategies(spec: Settings) -> Iterator[Kind]:
    for name, values in spec["workloads"].items():
        size = values["batch_size"]
        shared: Case = {"workload": name, "scaling": "strong", "batch_size": size, "unit": "samples", "units": size}
        yield "step_time", {**shared, "strategy": "single device", "devices": 1}
        for strategy in ("model parallel", "our gpipe", "our 1f1b", "DDP", "FSDP gradients", "FSDP parameters"):
            yield "step_time", {**shared, "strategy": strategy, "devices": 2}
        yield "peak_memory", {"workload": name}
        yield "largest_batch", {"workload": name}


def _input(spec: Settings) -> Iterator[Kind]:
    for name, values in spec["workloads"].items():
        size = values["batch_size"]
        shared: Case = {"workload": name, "devices": 1, "batch_size": size, "unit": "samples", "units": size}
        for part in ("workers", "settings"):
            yield "step_time", {**shared, "part": part, "data": "resident", "batches": 2}
        for workers in (0, 1, 2):
            yield "load_time", {**shared, "part": "workers", "memory": "pageable", "batches": 2, "workers": workers}
        yield "step_time", {**shared, "part": "settings", "data": "fed", "workers": 2, "batches": 16}
        usual: Case = {**shared, "part": "settings", "memory": "pageable", "workers": 2, "prefetch": 2, "batches": 4}
        for persistent in (True, False):
            yield "load_time", {**usual, "persistent": persistent}


def _tuning(spec: Settings) -> Iterator[Kind]:
    for name, devices in product(spec["workloads"], (1, 2)):
        strategy = "DDP" if devices > 1 else "single device"
        shared: Case = {"workload": name, "devices": devices, "strategy": strategy, "unit": "samples"}
        both: Case = {"fused": 1, "compile": 2}
        steps: list[Case] = [{}, {"fused": 1}, {"compile": 1}, both]
        for step in steps:
            yield "step_time", {**shared, **step, "batch_size": 8, "units": 8}
        for step in ({}, both):
            yield "step_time", {**shared, **step, "accumulate": 2, "batch_size": 16, "units": 16}
        yield "compile_time", {**shared, "compile": 1, "batch_size": 8, "units": 8}
        yield "peak_memory", {"workload": name, "devices": devices}
    for metric, rungs in product(("epoch_time", "accuracy"), ((), ("fused", "compile"))):
        own: Case = {"workload": "resnet18", "devices": 1, "strategy": "single device"}
        own |= {rung: place for place, rung in enumerate(rungs, 1)}
        yield metric, {**own, "data": "synthetic", "batch_size": spec["epoch_batch_size"], "lr": spec["lr"]}


def _heterogeneous(spec: Settings) -> Iterator[Kind]:
    whole = spec["batch_size"]
    for model in spec["models"]:
        shared: Case = {"workload": model, "pairing": "1 core and 1 core, slowed 3x", "batch_size": whole, "slowed": 3}
        for place, share in product(("1 core", "1 core, slowed 3x"), (1, *spec["shares"], whole)):
            yield "step_time", {**shared, "part": "alone", "place": place, "share": share}
        for metric in ("predicted_share", "predicted_time"):
            yield metric, {**shared, "part": "predicted"}
        for share in (whole, whole * 3 // 4, whole // 2):
            yield "step_time", {**shared, "part": "together", "share": share}


def _tensor_parallel(spec: Settings) -> Iterator[Kind]:
    for model in spec["models"]:
        shared: Case = {"workload": model, "batch_size": spec["batch_size"]}
        for partition, devices in (("single device", 1), ("column", 2), ("row", 2), ("pairs", 2)):
            yield "step_time", {"strategy": partition, "devices": devices, **shared}
        yield "peak_memory", {"workload": model}


def _health(gpus: int, spec: Settings) -> Iterator[Kind]:
    """Small sizes, as without GPUs, which stand in for devices then."""
    extent = Extent(links=(4096, 16 * 2**20), collectives=(16 * 2**20,))
    yield from health_cases(gpus or 2, emulated=not gpus, adapters=2 if gpus else 0, extent=extent)


# Of what is no time, or was not taken by a clock.
UNITS = {
    "errors": "count",
    "rate": "B/s",
    "free_space": "B",
    "predicted_share": "fraction",
    "predicted_time": "s",
    "played_bubble": "fraction",
}
VALUES = {
    "errors": [3.0, 3.0],
    "rate": [50e9],
    "free_space": [5e11],
    "predicted_share": [0.75],
    "predicted_time": [0.01],
    "played_bubble": [0.2],
}
KINDS = {
    "async_timing": _async_timing,
    "copy_cost": _copy_cost,
    "allreduce": _allreduce,
    "dp_scratch": _dp_scratch,
    "dp_concise": _dp_concise,
    "ddp": _ddp,
    "model_parallel": _model_parallel,
    "pipeline": _pipeline,
    "tensor_parallel": _tensor_parallel,
    "hybrid": _hybrid,
    "strategies": _strategies,
    "input": _input,
    "heterogeneous": _heterogeneous,
    "tuning": _tuning,
}
