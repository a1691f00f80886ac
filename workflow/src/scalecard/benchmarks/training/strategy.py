"""A way to train a workload, and how it is built: its subject, what it must do, and where it cannot be."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from torch import Tensor, nn

from scalecard import progress
from scalecard.benchmarks.training.reference_cache import References, Setting
from scalecard.measuring.case_variant import Subject, Work
from scalecard.measuring.proof import Change, Trained, training
from scalecard.measuring.timer import Synchronised
from scalecard.records.axes import Case
from scalecard.records.record import Check
from scalecard.records.strategies import Strategy
from scalecard.workloads.compiled import Compiled, compiled_code
from scalecard.workloads.workload import Workload

STEP, LOCAL, UPDATE = "step_time", "local_time", "update_time"
UNSYNCHRONISED, EXCHANGE = "unsynchronised_time", "exchange_time"


class CannotBe(ValueError):
    """A workload cannot be trained in this way, and why."""


@dataclass(frozen=True)
class StrategyBuilder:
    """An entry of the catalogue, and what builds a subject of it, or raises CannotBe.

    `replicas` of the model share the batch. `suits` raises CannotBe for a setting at which it cannot be timed. With
    another `metric`, it is no strategy, but a part of one that explains its time, and is proven as it is timed only;
    `axes` say which part, and whether it depends on the batch (`of_batch`). A part whose proof also `trains` needs the
    memory for that, too. A `note` goes to the record.
    """

    kind: Strategy
    build: Callable[[References, Setting], Subject]
    replicas: int = 1
    suits: Callable[[Setting], object] = bool
    metric: str = STEP
    axes: Case = field(default_factory=dict)
    of_batch: bool = True
    trains: Callable[[References, Setting], Subject] | None = None
    note: str = ""

    @property
    def pipelined(self) -> bool:
        """Whether it takes micro-batches."""
        return self.kind.schedule is not None

    @property
    def is_part(self) -> bool:
        """Whether it only explains the time of a strategy."""
        return self.metric != STEP


def trained(
    at: Setting,
    work: Work,
    state: Callable[[], Sequence[Tensor]],
    wanted: Callable[[], Trained | Change],
    *,
    references: References,
    modules: Sequence[nn.Module],
    devices: Sequence[Synchronised],
    counts: Mapping[str, float],
    repeats: int = 1,
    **more: Any,
) -> Subject:
    """A subject that trains these modules, of which the first is watched; a call of it takes `repeats` steps.

    A model that draws random numbers is proven in eval mode, and then counted and timed as it is trained.
    """
    steps = references.times(at.workload)
    subject = training(
        f"{at.workload.name}, {progress.counted(at.devices, 'device')}",
        work,
        state,
        wanted,
        times=steps // repeats,
        steps=steps,
        devices=devices,
        counts=counts,
        module=modules[0],
        **more,
    )
    subject = in_train_mode(subject, at.workload, modules)
    return with_compilation_checked(subject, compiled_code(modules)) if at.workload.recipe.compile else subject


def with_compilation_checked(subject: Subject, code: Collection[Compiled]) -> Subject:
    """The subject, and whether compiled code ran in every forward: checked once it is proven and once it is timed.

    Where torch.compile gives up, it runs the plain code and says nothing.
    """
    before = {each: (each.plain_calls, each.calls) for each in code}  # of other subjects of the same blocks

    def check() -> Iterator[Check]:
        plain = sum(each.plain_calls - plain + (each.calls == calls) for each, (plain, calls) in before.items())
        dtype = str(next(iter(subject.parameters())).dtype).removeprefix("torch.")
        yield Check(name="forwards in which no compiled code ran", dtype=dtype, difference=plain, tolerance=0.0)

    return replace(
        subject, prove=lambda: chain(subject.prove(), check()), after=lambda: chain(subject.after(), check())
    )


def in_train_mode(subject: Subject, workload: Workload, modules: Sequence[nn.Module]) -> Subject:
    """A subject of these modules as it is trained: if the model draws random numbers, once it is proven without."""

    def prove() -> Iterator[Check]:
        yield from subject.prove()
        for module in modules:
            module.train()

    return replace(subject, prove=prove) if workload.frozen and not workload.exact else subject
