"""How well forecasts do where they were not fitted: on simulated clusters, and on CPU ranks of this machine.

The most devices of each are held out. Simulated clusters are those of tests/simulated_clusters.py, whose events are not
the forecast's formulas: 8 GPUs, or 4 GPUs on each of 4 nodes, healthy or with one of the planted causes, none of which
was looked at to choose a constant (those were seeds 0 to 5). On CPUs, a small network is trained by DDP on 1 to 4 gloo
ranks with one thread each; more ranks than cores share them, as the forecast is told.
"""

import itertools
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from scalecard.hardware.environment import environment
from scalecard.hardware.machine import probe
from scalecard.records.record import Case, Count, Record, Result
from scalecard.records.telemetry import Telemetry
from scalecard.report.forecast.forecast import Forecast, forecasts
from scalecard.report.forecast.settings import Settings
from simulated_clusters import Cause, simulated
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSES: Sequence[Cause | None] = (None, "communication", "slow rank", "small batch", "launching", "unbalanced cut")
SEEDS = range(1001, 1004)
BATCH, WIDTH, ROUNDS, MOST = 64, 384, 30, 4
SIZES = [4096 * 8**k for k in range(4)]


def on_simulated_clusters() -> tuple[float, float]:
    """(median absolute error, share inside the bands) over all held-out steps."""
    found = list[Forecast]()
    for seed, cause in itertools.product(SEEDS, CAUSES):
        devices, nodes = (4, 4) if seed % 4 == 3 else (8, 1)
        found += forecasts(simulated(devices, nodes=nodes, cause=cause, seed=seed), Settings())
    return judged(found, "simulated clusters")


def on_cpu_ranks() -> tuple[float, float]:
    """The same, of DDP with both scalings: two cases each for 3 and 4 ranks held out."""
    records = list(measured())
    found = list[Forecast]()
    for most in range(3, MOST + 1):
        found += forecasts(results([r for r in records if int(str(r.case["devices"])) <= most]), Settings())
    return judged(found, "CPU ranks")


def judged(found: Sequence[Forecast], where: str) -> tuple[float, float]:
    held = [one.held_out for one in found if one.held_out]
    errors = [abs(one.error) for one in held]
    print(f"  {where}: {len(held)} held-out steps, errors up to {100 * max(errors):.1f} %")
    return statistics.median(errors), statistics.fmean(one.inside for one in held)


def results(records: Sequence[Record]) -> Mapping[str, Result]:
    """As the experiments would have written them."""
    machine = probe()
    empty = Result(
        experiment="strategies",
        platform="bench",
        spec={},
        environment=environment(replace(machine, num_devices=MOST)),
        started="2026-01-01T00:00:00.000+00:00",
        finished="2026-01-01T00:01:00.000+00:00",
        warnings=[],
        records=[],
    )
    reduced = [record for record in records if "algorithm" in record.case]
    steps = [record for record in records if "workload" in record.case]
    return {"strategies": replace(empty, records=steps), "allreduce": replace(empty, records=reduced)}


def measured() -> Iterator[Record]:
    """Steps and parts on 1 to 4 ranks, all of one number in the same rounds."""
    for ranks in range(1, MOST + 1):
        with TemporaryDirectory() as folder:
            mp.spawn(_rank, (ranks, folder), nprocs=ranks)
            yield from torch.load(Path(folder, "records"), weights_only=False)


def _rank(rank: int, ranks: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    found = [*_steps(rank, ranks), *_all_reduces(ranks)]
    if rank == 0:
        torch.save(found, Path(folder, "records"))
    dist.destroy_process_group()


def _network() -> nn.Module:
    torch.manual_seed(0)
    hidden = [part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 10))


def _steps(rank: int, ranks: int) -> Iterator[Record]:
    model: nn.Module = _network()
    size = 4 * sum(value.numel() for value in model.parameters())
    wrapped = DistributedDataParallel(model) if ranks > 1 else model
    batches = {"strong": BATCH // ranks * ranks, "weak": BATCH * ranks}
    if ranks == 1:
        yield from _alone(model)
        return
    kinds = list(itertools.product(batches, (True, False)))
    taken: dict[tuple[str, bool], list[list[float]]] = {kind: [] for kind in kinds}
    for turn in range(ROUNDS + 3):
        for scaling, sync in kinds if turn % 2 else kinds[::-1]:
            own = torch.tensor([_timed(wrapped, batches[scaling] // ranks, sync=sync)], dtype=torch.float64)
            everyone = [torch.zeros_like(own) for _ in range(ranks)]
            dist.all_gather(everyone, own)
            if turn >= 3:
                taken[scaling, sync].append([float(each) for each in everyone])
    for scaling, batch in batches.items():
        case: Case = {"workload": "mlp", "devices": ranks, "strategy": "DDP", "scaling": scaling}
        case |= {"batch_size": batch, "unit": "samples", "units": batch}
        work = [Count(name=name, counted=value, expected=value) for name, value in _work(size).items()]
        yield _record("step_time", case, [max(each) for each in taken[scaling, True]], work=work)
        yield _record("unsynchronised_time", case, [max(each) for each in taken[scaling, False]])
        for other in range(ranks):
            yield _record("rank_time", {**case, "rank": other}, [each[other] for each in taken[scaling, False]])


def _work(size: float) -> dict[str, float]:
    return {"all-reduced bytes": size, "all-reduces": 2.0}  # DDP's first bucket, and the rest


def _alone(model: nn.Module) -> Iterator[Record]:
    sizes = sorted({*(BATCH >> k for k in range(7)), *(BATCH // n for n in range(1, MOST + 1))})
    taken: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(ROUNDS + 3):
        for size in sizes if turn % 2 else sizes[::-1]:
            seconds = _timed(model, size, sync=True)
            if turn >= 3:
                taken[size].append(seconds)
    for size, times in taken.items():
        case: Case = {"workload": "mlp", "devices": 1, "batch_size": size, "unit": "samples", "units": size}
        yield _record("local_time", case, times)
        if size == BATCH:
            yield _record("step_time", {**case, "strategy": "single device", "scaling": "strong"}, times)


def _timed(model: nn.Module, batch: int, *, sync: bool, calls: int = 4) -> float:
    """Seconds of a step, the mean of some."""
    inputs, targets = torch.ones(batch, WIDTH), torch.zeros(batch, dtype=torch.long)
    if dist.get_world_size() > 1:
        dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        if sync or not isinstance(model, DistributedDataParallel):
            nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        else:
            with model.no_sync():
                nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for value in model.parameters():
                value -= 1e-3 * (value.grad if value.grad is not None else 0)
                value.grad = None
    return (time.perf_counter() - start) / calls


def _all_reduces(ranks: int) -> Iterator[Record]:
    if ranks == 1:
        return
    for size in SIZES:
        bucket, times = torch.zeros(size // 4), list[float]()
        for turn in range(ROUNDS + 3):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(4):
                dist.all_reduce(bucket)
            if turn >= 3:
                times.append((time.perf_counter() - start) / 4)
        yield _record("time", {"algorithm": "torch.distributed", "devices": ranks, "bytes": size}, times)


def _record(metric: str, case: Case, times: list[float], *, work: list[Count] | None = None) -> Record:
    rounds = f"{case['devices']} {metric == 'time'}"
    telemetry = [Telemetry(rounds_id=rounds)]
    return Record(case=case, metric=metric, unit="s", samples=[times], work=work or [], telemetry=telemetry)


if __name__ == "__main__":
    print(on_cpu_ranks())
    print(on_simulated_clusters())
