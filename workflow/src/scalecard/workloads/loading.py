"""How a training loop is fed: a DataLoader over a data set, whose passes are repeatable and leave no process behind.

    walk:    an order of the samples for each epoch, cut into batches; a pass has as many batches as it is asked for
    loader:  workers are forked, as PyTorch does on Linux, read the batches that they are told, and put them together

Samples that draw random numbers draw the same ones each time, or nobody could say whether a loader yields the right
ones. Every worker dies with the process that started it.
"""

import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from scalecard.hardware import isolation
from scalecard.workloads.nested import Tree, leaves

TRIED = 4  # samples that are read again with other random numbers
SEEDS = 8  # a picture that is only mirrored is the same with every other one


class Walk(Sampler[list[int]]):
    """So many batches of places in a data set: in shuffled epochs one after the other, the same in each pass.

    No place occurs twice in an epoch, which has whole batches only.
    """

    def __init__(self, places: int, batch_size: int, *, seed: int, num_batches: int) -> None:
        assert places >= batch_size, "an epoch has a batch"
        self.places, self.batch_size, self.seed, self.num_batches = places, batch_size, seed, num_batches

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        generator, each = torch.Generator().manual_seed(self.seed), self.places // self.batch_size
        order = list[int]()
        for number in range(self.num_batches):
            if number % each == 0:
                order = torch.randperm(self.places, generator=generator).tolist()
            start = number % each * self.batch_size
            yield order[start : start + self.batch_size]


class Shuffled(Sampler[list[int]]):
    """All places of a data set in batches, of which the last may be smaller, in an order that each pass draws anew."""

    def __init__(self, places: int, batch_size: int, order: torch.Generator) -> None:
        self.places, self.batch_size, self.order = places, batch_size, order

    def __len__(self) -> int:
        return -(-self.places // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in torch.randperm(self.places, generator=self.order).split(self.batch_size):
            yield batch.tolist()


class Repeatable(Dataset[Any]):
    """The same samples, each of which draws the same random numbers whenever and wherever it is read."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        seed_everything(index)
        return self.dataset[index]


def seed_everything(seed: int) -> None:
    """What a data set may draw from: PyTorch's generator of the CPU, Python's, and NumPy's if it is in use."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def repeatable(dataset: Any) -> Any:
    """The data set itself or, if its samples draw random numbers, one that repeats them (10 to 30 µs a sample)."""
    with torch.random.fork_rng(devices=[]):
        state = random.getstate()
        drawing = any(_varies(dataset, index) for index in range(min(TRIED, len(dataset))))
        random.setstate(state)
    return Repeatable(dataset) if drawing else dataset


def _varies(dataset: Any, index: int) -> bool:
    first = read(dataset, [index])
    for seed in range(SEEDS):
        seed_everything(seed)
        if not same(first, read(dataset, [index])):
            return True
    return False


def read(dataset: Any, places: list[int]) -> Tree:
    """The batch of these places without any loader: read one after the other, and put together."""
    return default_collate([dataset[place] for place in places])


def same(batch: Tree, other: Tree) -> bool:
    """Whether two batches have the same tensors, bit for bit."""
    ours, theirs = list(leaves(batch)), list(leaves(other))
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How a DataLoader works: its processes (0: none, the training's own reads), each `prefetch` batches ahead.

    If not `persistent`, they are started for every pass and end with it. `pinned`: a thread copies each batch into
    memory from which a GPU copies while it computes.
    """

    workers: int
    prefetch: int
    persistent: bool = True
    pinned: bool = False


class Feed:
    """Passes over the batches of a walk, or over all in a new order, by a DataLoader."""

    def __init__(self, dataset: Any, walk: Walk | Shuffled, loading: Loading) -> None:
        self.walk, self.begun, parent = walk, None, os.getpid()
        processes_only: dict[str, Any] = {}
        if loading.workers:
            processes_only = {
                "prefetch_factor": loading.prefetch,
                "persistent_workers": loading.persistent,
                "multiprocessing_context": "fork",
                "worker_init_fn": lambda _worker: isolation.die_with(parent),  # PyTorch's would end seconds later
            }
        self.loader: Any = DataLoader(
            dataset, batch_sampler=walk, num_workers=loading.workers, pin_memory=loading.pinned, **processes_only
        )

    def begin(self) -> None:
        """Let the workers load the first batches of the next pass."""
        self.begun = iter(self.loader)

    def take(self) -> Iterator[Tree]:
        """A pass: the one that was begun, or else one of which nothing is loaded yet."""
        begun, self.begun = self.begun, None
        return iter(self.loader) if begun is None else begun

    def resize(self, num_batches: int) -> None:
        """Let a pass have so many batches from now on; what was begun is dropped."""
        assert isinstance(self.walk, Walk), "a shuffled pass has all batches"
        self.walk.num_batches, self.begun = num_batches, None

    def close(self) -> None:
        self.begun = self.loader = None


class Resident:
    """Passes over batches that are where they are needed, again and again."""

    def __init__(self, batches: Sequence[Tree], num_batches: int) -> None:
        self.batches, self.num_batches = batches, num_batches

    def begin(self) -> None:
        """There is nothing to load."""

    def take(self) -> Iterator[Tree]:
        return islice(cycle(self.batches), self.num_batches)

    def resize(self, num_batches: int) -> None:
        """Let a pass have so many batches from now on."""
        self.num_batches = num_batches

    def close(self) -> None:
        self.batches = ()
