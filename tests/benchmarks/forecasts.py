"""How well forecasts do where they were not fitted: on simulated clusters, and on CPU ranks of this machine.

The most devices of each are held out. Simulated clusters are those of tests/support/simulated_clusters.py, whose events
are not the forecast's formulas: 8 GPUs, or 4 GPUs on each of 4 nodes, healthy or with one of the planted causes, none
of which was looked at to choose a constant (those were seeds 0 to 5). On CPUs, a small network with two batches is
trained by DDP on up to 4 gloo ranks with one thread each, at most as many as there are cores: as many as ScaleCard
measures.
"""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from scalecard.analysis.forecast.forecast import Forecast, forecasts
from scalecard.analysis.forecast.model import Settings
from scalecard.hardware.environment import environment
from scalecard.hardware.machine import probe
from scalecard.records.axes import Case
from scalecard.records.record import Count, Record, Result, Telemetry
from support.simulated_clusters import Cause, simulated
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSES: Sequence[Cause | None] = (None, "communication", "slow rank", "small batch", "launching", "unbalanced cut")
SEEDS = range(1001, 1004)
BATCHES, WIDTH, MOST = (64, 256), 512, min(4, probe().cores)
ROUNDS, WARM_UP, CALLS = 24, 3, 4
SIZES = [4096 * 8**k for k in range(4)]
FIRST_BUCKET = 2**20  # bytes, of DDP


def on_simulated_clusters() -> tuple[float, float]:
    """(median absolute error, share inside the bands) over all held-out steps."""
    found = list[Forecast]()
    for seed, cause in itertools.product(SEEDS, CAUSES):
        devices, nodes = (4, 4) if seed % 4 == 3 else (8, 1)
        found += forecasts(simulated(devices, nodes=nodes, cause=cause, seed=seed), Settings())
    return judged(found, "simulated clusters")


def on_cpu_ranks() -> tuple[float, float]:
    """The same, of DDP with both batches and scalings: four cases for each number of ranks, held out."""
    if MOST < 2:
        raise SystemExit("forecasts of CPU ranks need two cores: on one there is nothing to hold out")
    records = list(measured())
    found = list[Forecast]()
    for most in range(2, MOST + 1):
        found += forecasts(results([r for r in records if int(str(r.case["devices"])) <= most]), Settings())
    return judged(found, "CPU ranks")


def judged(found: Sequence[Forecast], where: str) -> tuple[float, float]:
    held = [one.held_out for one in found if one.held_out]
    errors = [abs(one.error) for one in held]
    print(f"  {where}: {len(held)} held-out steps, errors up to {100 * max(errors):.1f} %")
    return statistics.median(errors), statistics.fmean(one.inside for one in held)


def results(records: Sequence[Record]) -> Mapping[str, Result]:
    """As the experiments would have written them."""
    empty = Result(
        experiment="strategies",
        platform="bench",
        spec={},
        environment={**environment(replace(probe(), num_devices=MOST)), "emulated": True},
        started="2026-01-01T00:00:00.000+00:00",
        finished="2026-01-01T00:01:00.000+00:00",
        warnings=[],
        records=[],
    )
    reduced = [record for record in records if "algorithm" in record.case]
    steps = [record for record in records if "workload" in record.case]
    return {"strategies": replace(empty, records=steps), "allreduce": replace(empty, records=reduced)}


def measured() -> Iterator[Record]:
    """Steps and parts on up to 4 ranks, all in the same rounds, so that another load on the machine is that of all."""
    with TemporaryDirectory() as folder:
        mp.spawn(_rank, (folder,), nprocs=MOST)
        yield from torch.load(Path(folder, "records"), weights_only=False)


def _rank(rank: int, folder: str) -> None:
    """Ranks that a case does not need wait at the next barrier."""
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=MOST, timeout=timedelta(seconds=120))
    cases = [case for ranks in range(1, MOST + 1) for case in _cases(rank, ranks, dist.new_group(list(range(ranks))))]
    taken: list[list[list[float]]] = [[] for _ in cases]
    for turn in range(ROUNDS + WARM_UP):
        order = random.Random(turn).sample(range(len(cases)), len(cases))
        for place in order:
            dist.barrier()
            own = torch.tensor([cases[place].seconds() if rank < cases[place].ranks else 0.0], dtype=torch.float64)
            everyone = [torch.zeros_like(own) for _ in range(MOST)]
            dist.all_gather(everyone, own)
            if turn >= WARM_UP:
                taken[place].append([float(each) for each in everyone[: cases[place].ranks]])
    if rank == 0:
        found = [record for case, times in zip(cases, taken, strict=True) for record in case.records(times)]
        torch.save(found, Path(folder, "records"))
    dist.destroy_process_group()


@dataclass(frozen=True)
class Timed:
    """Work of the first `ranks` ranks, and the records that the slowest one's times become."""

    ranks: int
    metric: str
    case: Case
    work: Callable[[], object]
    counts: Mapping[str, float] = field(default_factory=dict)

    def seconds(self) -> float:
        """The mean of some calls, on this rank."""
        start = time.perf_counter()
        for _ in range(CALLS):
            self.work()
        return (time.perf_counter() - start) / CALLS

    def records(self, times: Sequence[Sequence[float]]) -> Iterator[Record]:
        yield self.record(self.metric, self.case, [max(each) for each in times])
        if self.metric == "unsynchronised_time":
            for rank in range(self.ranks):
                yield self.record("rank_time", {**self.case, "rank": rank}, [each[rank] for each in times])
        if self.metric == "local_time" and self.case["workload"] == _name(int(str(self.case["batch_size"]))):
            whole: Case = {**self.case, "strategy": "single device", "scaling": "strong"}
            yield self.record("step_time", whole, [max(each) for each in times])

    def record(self, metric: str, case: Case, times: list[float]) -> Record:
        work = [Count(name=name, counted=value, expected=value) for name, value in self.counts.items()]
        telemetry = [Telemetry(rounds_id="all")]
        return Record(case=case, metric=metric, unit="s", samples=[times], work=work, telemetry=telemetry)


def _cases(rank: int, ranks: int, group: Any) -> Iterator[Timed]:
    """A step of one rank at every batch; of more a step by DDP with either scaling, and all-reduces."""
    if ranks == 1:
        for batch in BATCHES:
            for size in sorted({*(batch >> k for k in range(7)), *(batch // n for n in range(2, MOST + 1))}):
                case: Case = {"workload": _name(batch), "devices": 1, **_amount(size)}
                yield Timed(1, "local_time", case, partial(_step, _network(), _data(size)))
        return
    model = DistributedDataParallel(_network(), process_group=group) if rank < ranks else _network()
    for batch in BATCHES:
        yield from _by_ddp(model, batch, ranks, group)
    for size in SIZES:
        case = {"algorithm": "torch.distributed", "devices": ranks, "bytes": size}
        yield Timed(ranks, "time", case, partial(dist.all_reduce, torch.zeros(size // 4), group=group))


def _by_ddp(model: nn.Module, batch: int, ranks: int, group: Any) -> Iterator[Timed]:
    """With and without exchanging gradients, and the exchange alone, as DDP makes it: a first bucket, and the rest."""
    size = 4 * sum(value.numel() for value in model.parameters())
    buckets = [torch.zeros(FIRST_BUCKET // 4), torch.zeros((size - FIRST_BUCKET) // 4)]
    for scaling, each in (("strong", batch // ranks), ("weak", batch)):
        case: Case = {"workload": _name(batch), "devices": ranks, "strategy": "DDP", "scaling": scaling}
        case |= _amount(each * ranks)
        for metric in ("step_time", "unsynchronised_time"):
            exchange = metric == "step_time"
            yield Timed(ranks, metric, case, partial(_step, model, _data(each), exchange=exchange))
        counts = {"all-reduced bytes": size, "all-reduces": len(buckets)}
        yield Timed(ranks, "exchange_time", case, partial(_exchange, buckets, group), counts)


def _exchange(buckets: Sequence[torch.Tensor], group: Any) -> None:
    for bucket in buckets:
        dist.all_reduce(bucket, group=group)


def _name(batch: int) -> str:
    return f"mlp, {batch}"


def _amount(batch: int) -> Case:
    return {"batch_size": batch, "unit": "samples", "units": batch}


def _data(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(batch, WIDTH), torch.zeros(batch, dtype=torch.long)


def _network() -> nn.Module:
    torch.manual_seed(0)
    hidden = [part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 10))


def _step(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], *, exchange: bool = True) -> None:
    """SGD on the same batch, with or without exchanging gradients."""
    kept = nullcontext() if exchange or not isinstance(model, DistributedDataParallel) else model.no_sync()
    with kept:
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for value in model.parameters():
            if value.grad is not None:
                value -= 1e-3 * value.grad
            value.grad = None


if __name__ == "__main__":
    print(on_cpu_ranks())
    print(on_simulated_clusters())
