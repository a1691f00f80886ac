"""What a loader does alone, and a step of training that it feeds, each proven against the data set itself.

A loader alone is timed over passes that begin with nothing loaded. A step that is fed is timed over passes whose first
batches were loaded before, as in the middle of an epoch: while other variants take their turns, the workers go on until
they are as far ahead as they may be. If the loader cannot keep up, these come for free, so what a step then takes is
the least that it can be.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scalecard.benchmarks.training.strategy import References, Setting, trained
from scalecard.hardware.devices import Device, Task
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import count
from scalecard.parallel.step import Step, state_of
from scalecard.records.record import Check
from scalecard.workloads import reference
from scalecard.workloads.loading import Feed, Loading, Resident, Walk, read, repeatable
from scalecard.workloads.nested import Tree, leaves, mapped, rows
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import Workload

COPIES = ("blocking", "non_blocking", "overlapped")  # to a GPU: awaited; behind the steps; beside them
AHEAD = 2  # steps that are submitted before the loop waits for the first of them, as loops do that read their loss


@dataclass(frozen=True)
class FromDataset(Workload):
    """A workload whose batches are samples of its data set, `places` of them, in the order in which a loader walks."""

    places: int = 0

    def walk(self, num_batches: int) -> Walk:
        """The first batches, over and over."""
        return Walk(self.places, self.batch_size, seed=self.seed, num_batches=num_batches)

    def _drawn(self, size: int) -> tuple[Tree, Tree]:
        """The first samples of the walk, read from the data set itself."""
        (order,) = Walk(self.places, self.places, seed=self.seed, num_batches=1)
        inputs, targets = read(self.samples, order[:size])
        return inputs, targets

    @property
    def samples(self) -> Any:
        """The data set, which is made once."""
        return samples_of(self.name, self.file, self.values, self.seed)

    def steps(
        self, sizes: tuple[int, ...], num_steps: int, exactly: bool, device: torch.device
    ) -> Sequence[reference.Step]:
        """Another batch in every step, each read from the data set itself."""
        place = partial(mapped, partial(self.placed, device))
        batches = [read(self.samples, places) for places in self.walk(num_steps)]
        return [self.parts((place(inputs), place(targets)), sizes, exactly) for inputs, targets in batches]


@functools.cache
def samples_of(name: str, file: str, values: str, seed: int) -> Any:
    """The data set of a workload, whose samples are the same each time; None if it has none."""
    dataset = Workload(name, file, values, 0, seed).dataset()
    return None if dataset is None else repeatable(dataset)


@dataclass(frozen=True)
class Pass:
    """Where a subject is built: the workload with its batch size, and how many batches a pass has."""

    workload: FromDataset
    num_batches: int


class Compared:
    """Looks at every batch of a pass: are its samples those of the data set, in their order, none twice in an epoch?

    `known` keeps what was read from the data set itself, by place.
    """

    def __init__(self, at: Pass, known: dict[int, list[Tensor]]) -> None:
        self.at, self.known = at, known
        self.places = list(at.workload.walk(at.num_batches))
        self.wrong, self.looked, self.dtype = 0, 0, ""

    def look(self, batch: Tree) -> None:
        """Count the samples that are not those of this batch."""
        found, self.dtype = list(leaves(batch)), str(next(leaves(batch)).dtype).removeprefix("torch.")
        places = self.places[self.looked] if self.looked < len(self.places) else []
        self.looked += 1
        self.wrong += abs(len(places) - rows(batch))
        for row, place in enumerate(places[: rows(batch)]):
            if place not in self.known:
                self.known[place] = list(leaves(read(self.at.workload.samples, [place])))
            own = self.known[place]
            self.wrong += not all(torch.equal(leaf[row], one[0]) for leaf, one in zip(found, own, strict=True))

    def check(self) -> Check:
        """How many samples are wrong, missing or repeated."""
        each = self.at.workload.places // self.at.workload.batch_size
        epochs = [self.places[start : start + each] for start in range(0, len(self.places), each)]
        repeated = sum(sum(map(len, epoch)) - len(set().union(*epoch)) for epoch in epochs)
        missing = sum(map(len, self.places[self.looked :]))
        wrong = float(self.wrong + repeated + missing)
        what = f"samples of a pass of {len(self.places)} batches, none twice in an epoch"
        return Check(name=f"{self.at.workload.name}: {what}", dtype=self.dtype, difference=wrong, tolerance=0.0)


@dataclass(frozen=True)
class Feeding:
    """Builds what is fed on one device; `feeds` are all that it has opened, to be closed once they were timed.

    `copier` copies to a GPU beside the steps, where they are to overlap; `known` has the samples that were read from
    the data set itself.
    """

    device: Device
    references: References
    copier: Device | None = None
    feeds: list[Feed] = field(default_factory=list)
    known: dict[int, list[Tensor]] = field(default_factory=dict)

    def close(self) -> None:
        """End all workers."""
        while self.feeds:
            self.feeds.pop().close()

    def _open(self, loading: Loading, at: Pass) -> Feed:
        feed = Feed(at.workload.samples, at.workload.walk(at.num_batches), loading)
        self.feeds.append(feed)
        return feed

    def alone(self, loading: Loading, at: Pass) -> Subject:
        """A pass of a loader, of which nothing is kept but the last batch."""
        feed, compared = self._open(loading, at), list[Compared]()

        def work() -> Tree:
            batch: Tree = None
            for batch in feed.take():
                count("loaded samples", rows(batch))
                for one in compared:
                    one.look(batch)
            return batch

        def prove() -> Iterator[Check]:
            compared.append(Compared(at, self.known))
            work()
            yield compared.pop().check()

        return Subject(work=work, prove=prove, expected={"loaded samples": at.num_batches * at.workload.batch_size})

    def fed(self, loading: Loading, copy: str, at: Pass) -> Subject:
        """Steps on the batches of a loader, which get to the device as `copy` says: in one of COPIES."""
        place = partial(self._place, at.workload, non_blocking=copy != "blocking")
        copier = self.copier if copy == "overlapped" else None
        samples = {"loaded samples": at.num_batches * at.workload.batch_size}
        return self._trained(at, self._open(loading, at), place, copier, samples)

    def resident(self, at: Pass) -> Subject:
        """The same steps on batches that are on the device: on all of them to be proven, on the first to be timed."""
        places = at.workload.walk(at.num_batches if at.workload.exact else 1)
        batches = [self._place(at.workload, read(at.workload.samples, each)) for each in places]
        return self._trained(at, Resident(batches, at.num_batches), lambda batch: batch, None, {})

    def _place(self, workload: Workload, batch: Tree, *, non_blocking: bool = False) -> Tree:
        return mapped(partial(workload.placed, self.device.torch, non_blocking=non_blocking), batch)

    def _trained(
        self,
        at: Pass,
        feed: Feed | Resident,
        place: Callable[[Tree], Tree],
        copier: Device | None,
        counts: Mapping[str, float],
    ) -> Subject:
        workload, first = at.workload, at.workload.batch(at.workload.batch_size, self.device.torch)
        model = workload.network(self.device.torch)
        optimizer, sizes = workload.optimizer_settings, workload.micro_batch_sizes(workload.batch_size)
        step = Step.of(workload, model, first)
        num_steps = self.references.times(workload)
        once = {**optimizer.updates(trainable(model)), "forwards": len(sizes)}
        each = {name: at.num_batches * value for name, value in once.items()}
        subject = trained(
            Setting(workload, 1),
            partial(self._pass, step, feed, place, copier),
            partial(state_of, model),
            self.references.at(workload, sizes),
            references=self.references,
            modules=[model],
            devices=[self.device],
            counts={**each, **self.references.counts(workload, sizes * at.num_batches), **counts},
            repeats=num_steps,
        )

        def prove() -> Iterator[Check]:
            """Of a pass as it is timed, the first step: a whole one would take as long in float64 as all the rest."""
            feed.resize(num_steps)
            yield from subject.prove()
            if workload.exact:
                feed.close()
            else:
                feed.resize(at.num_batches)

        return replace(subject, prove=prove)

    def _pass(self, step: Step, feed: Feed | Resident, place: Callable[[Tree], Tree], copier: Device | None) -> None:
        """A step on every batch of the feed, few of them under way at the same time."""
        under_way = deque[Task]()
        for batch in feed.take():
            count("loaded samples", rows(batch))
            brought = copier.submit(place, batch) if copier else partial(place, batch)
            under_way.append(self.device.submit(_train, step, brought))
            if len(under_way) >= AHEAD:
                _wait(under_way.popleft())
        feed.begin()


def _train(step: Step, brought: Tree | Callable[[], Tree]) -> None:
    """On the device: bring a batch, or take over one that was copied by another of its streams, and train on it."""
    if callable(brought):
        step.inputs, step.targets = brought()
    else:
        step.inputs, step.targets = mapped(_kept, brought)
    step()


def _kept(tensor: Tensor) -> Tensor:
    """Its memory is not given out again to the stream that copied it before this one is done with it."""
    if tensor.device.type != "cpu":
        tensor.record_stream(torch.get_device_module(tensor.device).current_stream(tensor.device))
    return tensor


def _wait(task: Task) -> None:
    if task.queued:
        task.queued.event.synchronize()
    else:
        task.result()
