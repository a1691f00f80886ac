"""Results of made-up clusters whose truth is known: strategies, allreduce, health and input, as records.

`simulated(devices=8, cause="communication", seed=1)` is what ScaleCard would have written there; the events behind it
are in simulated_events.py. The seed draws the cluster as well, so every seed is another one with the same cause.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from scalecard.distributed import layouts
from scalecard.records.axes import Case
from scalecard.records.record import Count, Record, Result, Telemetry

from support.builders import gpu_state, hardware_state
from support.health_boxes import Box
from support.simulated_events import Cluster, Times, buckets, collective, ddp, fsdp, pipeline

Cause = Literal["communication", "slow rank", "small batch", "launching", "loader", "unbalanced cut"]
WORKLOAD, UNIT = "gpt", "tokens"
SIZES = [4**k for k in range(6, 15)]  # 4 KiB to 256 MiB, as in config.yaml
STEPS, PROCESSES = 20, 3
SPREAD = 0.002  # between fresh processes
WATTS, IDLE_WATTS = 600.0, 90.0


def drawn(cause: Cause | None, seed: int) -> Cluster:
    """A cluster that suffers from this and from nothing else."""
    draw = np.random.default_rng([seed, 1])
    vary = lambda low, high: float(np.exp(draw.uniform(np.log(low), np.log(high))))  # noqa: E731
    usual = Cluster(
        layers=int(draw.integers(16, 33)),
        gradient_bytes=vary(2e8, 8e8),
        work=vary(1.2e-3, 4e-3),
        jitter=vary(0.003, 0.012),
        link=vary(1.5e11, 4e11),
        hop=vary(1.5e-6, 4e-6),
        warm=vary(0.004, 0.02),
        network=vary(1.2e10, 5e10),
    )
    planted = {
        "communication": {"link": usual.gradient_bytes / usual.work / 25},
        "slow rank": {"slow": ((1, 1.35),)},
        "small batch": {"half": 24.0},
        "launching": {"launch": 0.8 * usual.work * usual.batch / 3 / usual.layers},
        "unbalanced cut": {"uneven": 0.7},
    }
    return replace(usual, **planted.get(cause or "", {}))  # type: ignore[arg-type]


@cache
def simulated(
    devices: int = 8, *, cause: Cause | None = None, seed: int = 0, nodes: int = 1, cluster: Cluster | None = None
) -> dict[str, Result]:
    """By experiment, what was measured on `devices` GPUs of each of `nodes` nodes, with this planted `cause`.

    The same dict every time, not to be changed.
    """
    box, chosen = Box(count=devices, switched=18, nodes=nodes), replace(cluster or drawn(cause, seed), per_node=devices)
    health = box.result()
    run = _Run(chosen, cause, np.random.default_rng([seed, 2]), devices, nodes)
    spec = {"scaling": ["strong", "weak"], "micro_batches": 8, "workloads": {WORKLOAD: {"batch_size": chosen.batch}}}
    collectives = [r for r in health.records if r.case.get("part") != "collective"]
    return {
        "strategies": replace(health, experiment="strategies", spec=spec, records=[*run.strategies()]),
        "allreduce": replace(health, experiment="allreduce", spec={"bytes": SIZES}, records=[*run.all_reduces()]),
        "health": replace(health, records=[*collectives, *run.collectives()]),
        "input": replace(health, experiment="input", records=[*run.inputs()]),
    }


def true_step(cluster: Cluster, strategy: str, devices: int, scaling: str, *, seed: int = 0) -> float:
    """The median step, in seconds, on any number of devices; `cluster.per_node` of them are on a node."""
    whole = cluster.batch * (devices if scaling == "weak" else 1)
    draw, each = np.random.default_rng([seed, 3]), whole // devices
    if strategy == "DDP":
        return float(np.median(ddp(cluster, draw, 60, each, devices)[0]))
    if strategy.startswith("FSDP"):
        return float(np.median(fsdp(cluster, draw, 60, each, devices, parameters=strategy.endswith("parameters"))))
    name = strategy.removeprefix("our ")
    return float(np.median(pipeline(cluster, draw, 40, name, whole, devices, micro_batches(whole))[0]))


def micro_batches(batch: int) -> int:
    """Equal ones, eight at most."""
    return max(count for count in range(1, min(8, batch) + 1) if batch % count == 0)


@dataclass(frozen=True)
class _Run:
    """One run on a cluster. Every process has a pace of its own, which all that it measures shares."""

    cluster: Cluster
    cause: Cause | None
    draw: np.random.Generator
    devices: int
    nodes: int

    def layouts(self) -> Iterator[Case]:
        for layout in layouts(self.devices, self.nodes):
            yield layout.case

    def on(self, layout: Case) -> Cluster:
        """The cluster with as many devices on each node as the layout uses."""
        return replace(self.cluster, per_node=int(str(layout["devices"])) // int(str(layout.get("nodes") or 1)))

    def strategies(self) -> Iterator[Record]:
        for layout in self.layouts():
            ranks = int(str(layout["devices"]))
            for scaling in ("strong", "weak") if ranks > 1 else ("strong",):
                batch = self.cluster.batch * (ranks if scaling == "weak" else 1)
                of: Case = {"workload": WORKLOAD, **layout, "scaling": scaling, **self.amount(batch)}
                yield from self.data_parallel(of, ranks, batch) if ranks > 1 else self.single(of)
                if ranks > 1 and "nodes" not in layout:
                    yield from self.pipelines(of, ranks, batch)

    def amount(self, batch: int) -> Case:
        return {"batch_size": batch, "unit": UNIT, "units": 1024 * batch}

    def single(self, of: Case) -> Iterator[Record]:
        name, batch = f"single {of}", self.cluster.batch
        alone = self.repeated(lambda: self.cluster.alone(self.draw, STEPS, batch)[:, 0])
        yield self.timed("step_time", {**of, "strategy": "single device"}, alone, name)
        for size in (batch >> k for k in range(batch.bit_length())):
            times = self.repeated(lambda size=size: self.cluster.alone(self.draw, STEPS, size)[:, 0])
            yield self.timed("local_time", {"workload": WORKLOAD, "devices": 1, **self.amount(size)}, times, name)

    def data_parallel(self, of: Case, ranks: int, batch: int) -> Iterator[Record]:
        each, size, name, cluster = batch // ranks, self.cluster.gradient_bytes, f"ranks {of}", self.on(of)
        both = [ddp(cluster, self.draw, STEPS, each, ranks) for _ in range(PROCESSES)]
        paces = [math.exp(SPREAD * self.draw.standard_normal()) for _ in both]
        case: Case = {**of, "strategy": "DDP"}
        work = [count("all-reduces", len(buckets(self.cluster))), count("all-reduced bytes", size)]
        steps = [p * step for p, (step, _) in zip(paces, both, strict=True)]
        own = [p * times for p, (_, times) in zip(paces, both, strict=True)]
        yield self.timed("step_time", case, steps, name, work=work[1:])
        yield self.timed("exchange_time", case, self.exchanged(cluster, ranks), name, work=work)
        yield self.timed("unsynchronised_time", case, [times.max(axis=1) for times in own], name)
        for rank in range(ranks):
            yield self.timed("rank_time", {**case, "rank": rank}, [times[:, rank] for times in own], name)
        for freed in (False, True):
            times = self.repeated(lambda freed=freed: fsdp(cluster, self.draw, STEPS, each, ranks, parameters=freed))
            case = {**of, "strategy": "FSDP parameters" if freed else "FSDP gradients"}
            yield self.timed("step_time", case, times, name, work=[count("collective bytes", (2 + freed) * size)])

    def exchanged(self, cluster: Cluster, ranks: int) -> list[Times]:
        """The gradients' buckets, one after another."""

        def once() -> Times:
            done = np.zeros(STEPS)
            for _, size in buckets(cluster):
                done = collective(cluster, self.draw, done, size, ranks)
            return done

        return self.repeated(once)

    def pipelines(self, of: Case, stages: int, batch: int) -> Iterator[Record]:
        for schedule in ("gpipe", "1f1b"):
            case: Case = {**of, "strategy": f"our {schedule}"}
            sizes = schedule, batch, stages, micro_batches(batch)
            runs = [pipeline(self.cluster, self.draw, STEPS, *sizes) for _ in range(PROCESSES)]
            yield self.timed("step_time", case, [step for step, _, _ in runs], f"process {of}")
            yield self.timed("played_time", case, [ideal for _, ideal, _ in runs], f"process {of}")
        where: Case = {key: of[key] for key in ("workload", "devices", "scaling", "batch_size")}
        for stage in range(stages):
            own = {**where, "split_size": batch // micro_batches(batch), "stage": stage, "part": "forward and backward"}
            yield self.timed("stage_time", own, [alone[:, stage] for _, _, alone in runs], f"process {of}")
            update = [np.full(STEPS, self.cluster.update / stages) for _ in runs]
            own = {"workload": WORKLOAD, "devices": stages, "stage": stage, "part": "update"}
            yield self.timed("stage_time", own, update, f"process {of}")

    def all_reduces(self) -> Iterator[Record]:
        for layout in list(self.layouts())[1:]:
            for size in SIZES:
                case: Case = {"algorithm": "torch.distributed", **layout, "bytes": size, "backend": "nccl"}
                yield self.timed("time", case, self.exchanges(layout, size, 2), str(case))

    def collectives(self) -> Iterator[Record]:
        for layout in list(self.layouts())[1:]:
            for name, size in ((name, 2.0**k) for name in PASSES for k in (20, 30)):
                case: Case = {"part": "collective", "collective": name, **layout, "bytes": int(size), "backend": "nccl"}
                yield self.timed("time", case, self.exchanges(layout, size, PASSES[name]), str(case))

    def exchanges(self, layout: Case, size: float, passes: int) -> list[Times]:
        cluster, ranks = self.on(layout), int(str(layout["devices"]))

        def once() -> Times:
            return collective(cluster, self.draw, np.zeros(STEPS), size, ranks, passes=passes)

        return self.repeated(once)

    def inputs(self) -> Iterator[Record]:
        """A loader that feeds a tenth more than all devices train, or a third of what one does."""
        one = float(np.median(self.cluster.alone(self.draw, STEPS, self.cluster.batch)))
        each = 3 * one if self.cause == "loader" else one / self.devices / 1.1
        case: Case = {"workload": WORKLOAD, "devices": 1, "workers": 8, "batch_size": self.cluster.batch}
        for metric, own, seconds in (
            ("load_time", case, each),
            ("step_time", {**case, "data": "resident"}, one),
            ("step_time", {**case, "data": "fed"}, max(one, each)),
        ):
            times = self.repeated(lambda s=seconds: s * np.exp(0.01 * self.draw.standard_normal(STEPS)))
            yield self.timed(metric, own, times, "input")

    def repeated(self, once: Callable[[], Times]) -> list[Times]:
        return [math.exp(SPREAD * self.draw.standard_normal()) * once() for _ in range(PROCESSES)]

    def timed(
        self, metric: str, case: Case, times: list[Times], name: str, *, work: list[Count] | None = None
    ) -> Record:
        """With the energy of all visible GPUs, of which some may idle, and how long launching took."""
        busy, seconds = min(self.devices, int(str(case.get("devices", 1)))), float(np.median(times[0]))
        joules = seconds * (WATTS * busy + IDLE_WATTS * (self.devices - busy)) if metric == "step_time" else None
        enqueue = (0.97 if self.cause == "launching" else 0.2) * seconds
        state = hardware_state(*[gpu_state()] * busy)
        return Record(
            case=case,
            metric=metric,
            unit="s",
            samples=[[float(value) for value in process] for process in times],
            work=work or [],
            telemetry=[
                Telemetry(rounds_id=f"{name} {i}", enqueue=enqueue, joules=joules, state=state)
                for i in range(len(times))
            ],
        )


PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def count(name: str, value: float) -> Count:
    return Count(name=name, counted=value, expected=value)
