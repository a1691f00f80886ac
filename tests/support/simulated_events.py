"""What a made-up cluster does in a step, event by event: the truth that tests and benchmarks hold answers against.

Nothing here is a formula of the report's. Devices compute layer by layer, with jitter, pauses, and kernels that are not
faster than they are launched; a collective goes hop by hop around a ring whose every hop scatters, and waits for the
last rank; while both happen, each slows the other down; stages take their micro-batches one by one. Arrays are indexed
by step (of `steps`), then by rank.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scalecard.records.schedules import SCHEDULES, played

Times = NDArray[np.float64]
FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20  # bytes, as DDP's
SLOWED, SLOWS = 1.25, 0.05  # a collective takes so many times as long beside computing, which takes as much more


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Devices, the links between them and what they train. Times in seconds, rates in bytes per second.

    `work` is what one sample costs in all layers, `half` the samples' worth of work that a batch wastes, `launch` what
    a layer takes at least; `slow` are ranks and how many times as long they take; `uneven` shifts layers' work to the
    first ones.
    """

    layers: int = 24
    gradient_bytes: float = 4e8
    batch: int = 64
    work: float = 1.6e-3
    half: float = 1.0
    launch: float = 3e-5
    update: float = 1e-3
    jitter: float = 0.01
    pauses: float = 0.004
    slow: tuple[tuple[int, float], ...] = ()
    warm: float = 0.01
    uneven: float = 0.0
    per_node: int = 8
    link: float = 3e11
    hop: float = 2.5e-6
    network: float = 2.5e10
    network_hop: float = 8e-6
    hand_over: float = 2e-5

    @cached_property
    def shares(self) -> Times:
        """Of a sample's work, by layer."""
        each = 1 + self.uneven * np.linspace(1, -1, self.layers)
        return np.asarray(each / each.sum())

    def layer_times(self, batch: int) -> Times:
        """A layer's forward; its backward takes twice as long. Samples are computed in pairs."""
        samples = 2 * np.ceil(batch / 2) + self.half if batch > 1 else 1.2 + self.half
        return np.maximum(self.launch, self.shares * self.work * samples / 3)

    def devices(self, draw: np.random.Generator, steps: int, ranks: int) -> Times:
        """How many times as long each rank takes in each step: its own pace, jitter, pauses, and heat in company."""
        pace = 1 + 0.003 * np.random.default_rng(7).standard_normal(4096)[:ranks]
        for rank, factor in self.slow:
            if rank < ranks:
                pace[rank] *= factor
        scatter = np.exp(self.jitter * draw.standard_normal((steps, ranks)))
        paused = 1 + 0.06 * (draw.random((steps, ranks)) < self.pauses)
        company = 1 + self.warm * (1 - np.exp(-(min(ranks, self.per_node) - 1) / 3))
        return np.asarray(pace * scatter * paused * company)

    def alone(self, draw: np.random.Generator, steps: int, batch: int, ranks: int = 1) -> Times:
        """Each rank's step by itself."""
        return self.devices(draw, steps, ranks) * (3 * self.layer_times(batch).sum() + self.update)


def collective(
    cluster: Cluster, draw: np.random.Generator, ready: Times, size: float, ranks: int, *, passes: int = 2
) -> Times:
    """When it is done: around the ring `passes` times (2 of an all-reduce, 1 of its halves); over a tree if small."""
    if ranks == 1:
        return ready
    crossing = np.arange(ranks) % min(cluster.per_node, ranks) == 0 if ranks > cluster.per_node else np.zeros(ranks)
    hop = np.where(crossing, cluster.network_hop, cluster.hop)
    rate = np.where(crossing, cluster.network, cluster.link)
    depth = int(np.ceil(np.log2(ranks)))
    over_tree = 3 * depth * float(hop.max()) * passes + 1.2 * passes * size / float(rate.min())
    around = passes * (ranks - 1) * float((hop + size / ranks / rate).max())
    start = ready + 8e-6 * np.exp(0.05 * draw.standard_normal(len(ready)))
    if over_tree < around:
        return np.asarray(start + over_tree * np.exp(0.04 * draw.standard_normal(len(ready))))
    arrived = np.repeat(start[:, None], ranks, axis=1)
    for _ in range(passes * (ranks - 1)):
        took = (hop + size / ranks / rate) * np.exp(0.04 * draw.standard_normal(arrived.shape))
        arrived = np.maximum(arrived, np.roll(arrived, 1, axis=1)) + took
    return np.asarray(arrived.max(axis=1))


def buckets(cluster: Cluster) -> list[tuple[int, float]]:
    """(the layer whose backward completes it, its bytes), in the order of the backward."""
    found, held, limit = list[tuple[int, float]](), 0.0, FIRST_BUCKET
    for layer in reversed(range(cluster.layers)):
        held += cluster.gradient_bytes / cluster.layers
        if held >= limit or layer == 0:
            found, held, limit = [*found, (layer, held)], 0.0, BUCKET
    return found


def ddp(cluster: Cluster, draw: np.random.Generator, steps: int, batch: int, ranks: int) -> tuple[Times, Times]:
    """(the step of all, each rank's own without exchanging gradients); `batch` is each rank's."""
    pace, layer = cluster.devices(draw, steps, ranks), cluster.layer_times(batch)
    forward, late = pace * layer.sum(), np.zeros((steps, 1))
    free, reached = np.zeros(steps), forward
    done = cluster.layers
    for until, size in buckets(cluster):
        reached = reached + pace * 2 * layer[until:done].sum()
        done = until
        begins = np.maximum(free, (reached + late).max(axis=1))
        ends = collective(cluster, draw, begins, size, ranks)
        beside = (begins < (reached + pace * 2 * layer[:until].sum() + late).max(axis=1)) & (ranks > 1)
        ends = np.where(beside, begins + SLOWED * (ends - begins), ends)
        late = late + np.where(beside, SLOWS * (ends - begins), 0.0)[:, None]
        free = ends
    computed = (reached + late).max(axis=1)
    step = np.maximum(computed, free if ranks > 1 else 0) + cluster.update * pace.max(axis=1)
    own = cluster.devices(draw, steps, ranks) * (3 * layer.sum() + cluster.update)
    return step, own


def fsdp(cluster: Cluster, draw: np.random.Generator, steps: int, batch: int, ranks: int, *, parameters: bool) -> Times:
    """Blocks of four layers: gathered ahead of the forward and, if parameters are freed, of the backward."""
    pace, layer = cluster.devices(draw, steps, ranks), cluster.layer_times(batch)
    blocks = np.array_split(np.arange(cluster.layers), max(1, cluster.layers // 4))
    link, computed = np.zeros(steps), np.zeros((steps, ranks))
    for block in blocks:
        link = collective(cluster, draw, link, cluster.gradient_bytes * len(block) / cluster.layers, ranks, passes=1)
        computed = np.maximum(computed, link[:, None]) + pace * layer[block].sum()
    for block in reversed(blocks):
        size = cluster.gradient_bytes * len(block) / cluster.layers
        if parameters:
            link = collective(cluster, draw, np.maximum(link, computed.min(axis=1)), size, ranks, passes=1)
            computed = np.maximum(computed, link[:, None])
        computed = computed + pace * 2 * layer[block].sum() * (1 + SLOWS)
        link = collective(cluster, draw, np.maximum(link, computed.max(axis=1)), size, ranks, passes=1)
    return np.asarray(np.maximum(link, computed.max(axis=1)) + cluster.update / ranks)


def hsdp(cluster: Cluster, draw: np.random.Generator, steps: int, batch: int, nodes: int) -> Times:
    """FSDP within each node, in the same blocks; then the shards of each block's gradients between nodes.

    The devices of a node share its network.
    """
    ranks, devices = nodes * cluster.per_node, cluster.per_node
    between = replace(cluster, per_node=1, network=cluster.network / devices)
    pace, layer = cluster.devices(draw, steps, ranks), cluster.layer_times(batch)
    blocks = np.array_split(np.arange(cluster.layers), max(1, cluster.layers // 4))
    link, computed = np.zeros(steps), np.zeros((steps, ranks))
    sizes = [cluster.gradient_bytes * len(block) / cluster.layers for block in blocks]
    for block, size in zip(blocks, sizes, strict=True):
        link = collective(cluster, draw, link, size, devices, passes=1)
        computed = np.maximum(computed, link[:, None]) + pace * layer[block].sum()
    for block, size in zip(reversed(blocks), reversed(sizes), strict=True):
        link = collective(cluster, draw, np.maximum(link, computed.min(axis=1)), size, devices, passes=1)
        computed = np.maximum(computed, link[:, None]) + pace * 2 * layer[block].sum() * (1 + SLOWS)
        link = collective(cluster, draw, np.maximum(link, computed.max(axis=1)), size, devices, passes=1)
        link = collective(between, draw, link, size / devices, nodes)
    return np.asarray(np.maximum(link, computed.max(axis=1)) + cluster.update / devices)


def pipeline(
    cluster: Cluster, draw: np.random.Generator, steps: int, schedule: str, batch: int, stages: int, micros: int
) -> tuple[Times, Times, Times]:
    """(the step, the schedule played with the stages' own times, and what each stage computes in a step, by stage).

    Stages have as many layers as they can.
    """
    layer = cluster.layer_times(batch // micros)
    each = np.array([layer[part].sum() for part in np.array_split(np.arange(cluster.layers), stages)])
    whole, ideal, alone = list[float](), list[float](), list[Times]()
    for pace in cluster.devices(draw, steps, stages):
        own, apart = each * pace, [0.0] * (stages - 1)
        handed = [cluster.hand_over * float(np.exp(0.1 * draw.standard_normal())) for _ in apart]
        last = [cluster.update / stages] * stages
        launched = 1 + 0.01 * abs(draw.standard_normal())
        plan = SCHEDULES[schedule]
        ideal.append(played(plan, [*own], [*(2 * own)], apart, micros, last).makespan)
        whole.append(played(plan, [*own], [*(2 * own)], handed, micros, last).makespan * launched)
        alone.append(3 * micros * own)
    return np.array(whole), np.array(ideal), np.array(alone)
