"""What a trial says of a strategy: what it needs of the memory, or why it cannot be used; the same on every rank."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from scalecard.benchmarks.training import memory_trials
from scalecard.benchmarks.training.memory_trials import USABLE, Trial, Trials
from scalecard.benchmarks.training.strategy import CannotBe, References, Setting, StrategyBuilder
from scalecard.hardware.failures import DeviceFault
from scalecard.measuring.case_variant import Subject
from scalecard.records.strategies import DATA_X_TENSOR, DDP, SINGLE, Strategy
from scalecard.workloads.workload import Workload

AT = Setting(Workload("toy", "", "{}", 6, seed=0), devices=2)
GIB = 2.0**30


@dataclass
class Rank:
    """One of two ranks on a GPU whose allocator is made up: what the `other` one found, and what waiting raises."""

    device: torch.device = field(default_factory=lambda: torch.device("cuda", 0))
    other: Trial = field(default_factory=Trial)
    left: Exception | None = None

    def attempted(self, error: Exception | None) -> None:
        """The other one comes as well."""

    def synchronize(self) -> None:
        if self.left:
            raise self.left

    def all_gather(self, value: Any) -> list[Any]:
        return [value, self.other]

    def maximum(self, values: list[float]) -> list[float]:
        return values


class Allocator:
    """Gives out memory as a strategy of 3 GiB does that needs 2 more in its first step and 4 in every other one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.most, self.steps = 1 * GIB, 9 * GIB, 0
        self.cached, self.pool = 7 * GIB, 0.0
        patch.setattr(torch.accelerator, "memory_allocated", lambda index: self.now)
        patch.setattr(torch.accelerator, "max_memory_allocated", lambda index: self.most)
        patch.setattr(torch.accelerator, "reset_peak_memory_stats", lambda index: setattr(self, "most", self.now))
        patch.setattr(torch.accelerator, "memory_reserved", lambda index: self.now + self.cached + self.pool)
        patch.setattr(memory_trials, "empty_cache", lambda: setattr(self, "cached", 0.0))
        patch.setattr(torch.accelerator, "get_memory_info", lambda index: (50 * GIB, 80 * GIB))

    def build(self, references: References, at: Setting) -> Subject:
        self.now += 3 * GIB
        return Subject(work=self.step, prove=list)

    def step(self) -> None:
        self.steps += 1
        self.cached += 2 * GIB
        self.most = max(self.most, self.now + (2 if self.steps == 1 else 4) * GIB)


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    return Allocator(monkeypatch)


def trials(rank: Rank) -> Trials:
    return Trials(rank, [rank], References(torch.device("cpu"), 1, counting=False))  # type: ignore[arg-type]


def test_what_stays_and_what_the_second_step_takes_is_measured_over_what_was_there(allocator: Allocator) -> None:
    assert trials(Rank()).of(StrategyBuilder(SINGLE, allocator.build), AT) == Trial(resident=3 * GIB, peak=7 * GIB)


def test_the_pool_of_a_graph_stays_though_nothing_in_it_counts_as_allocated(allocator: Allocator) -> None:
    """Recording takes 6 GiB, from which a replay's 4 are given out unseen."""

    def step() -> None:
        allocator.pool = 6 * GIB
        allocator.most = max(allocator.most, allocator.now)

    def build(references: References, at: Setting) -> Subject:
        return replace(allocator.build(references, at), work=step)

    assert trials(Rank()).of(StrategyBuilder(SINGLE, build), AT) == Trial(resident=9 * GIB, peak=9 * GIB)


def test_the_first_step_of_the_slowest_rank_is_timed(allocator: Allocator) -> None:
    rank = Rank(other=Trial(first=90.0))
    assert trials(rank).of(StrategyBuilder(SINGLE, allocator.build), AT).first == 90
    assert 0 < trials(Rank()).of(StrategyBuilder(SINGLE, allocator.build), AT).first < 1


def test_the_rank_that_needs_the_most_counts(allocator: Allocator) -> None:
    rank = Rank(other=Trial(1 * GIB, 9 * GIB))
    assert trials(rank).of(StrategyBuilder(SINGLE, allocator.build), AT) == Trial(resident=3 * GIB, peak=9 * GIB)


def test_what_memory_is_for_is_that_of_the_rank_that_needs_the_most(allocator: Allocator) -> None:
    """Ours needs 7 GiB; what the step does is not seen, but that it has no parameters."""
    strategy = StrategyBuilder(SINGLE, allocator.build)
    ours = {"parameters": 0.0, "optimizer": 0.0}
    for peak, expected in ((6 * GIB, ours), (9 * GIB, {"rest": 1.0})):
        rank = Rank(other=Trial(0, peak, by_kind={"rest": 1.0}))
        assert replace(trials(rank), by_kind=True).of(strategy, AT).by_kind == expected
        assert trials(Rank()).of(strategy, AT).by_kind == {}, "nobody asked"


def test_of_ranks_that_need_as_much_the_one_with_the_smaller_rest_counts(allocator: Allocator) -> None:
    """They took as many pages of the memory, which have the same size."""
    rank = Rank(other=Trial(0, 7 * GIB, by_kind={"activations": 2.0, "rest": 1.0}))

    class Watched(Trials):
        def _needs(self, build: object, pipelined: bool) -> Trial:
            return Trial(0, 7 * GIB, by_kind={"activations": 1.0, "rest": 2.0})

    found = Watched(rank, [rank], References(torch.device("cpu"), 1)).of(StrategyBuilder(SINGLE, allocator.build), AT)  # type: ignore[arg-type]
    assert (found.by_kind["activations"], found.place) == (2.0, 1)


def test_what_is_free_is_the_drivers_and_the_allocators_own_less_what_libraries_take(allocator: Allocator) -> None:
    assert trials(Rank()).free() == pytest.approx((50 + 7 - (1 - USABLE) * 80) * GIB)
    assert trials(Rank(torch.device("cpu"))).free() == float("inf")


def raising(error: Exception) -> Callable[[References, Setting], Subject]:
    def build(references: References, at: Setting) -> Subject:
        raise error

    return build


@pytest.mark.parametrize(
    ("error", "refused", "too_large"),
    [
        (CannotBe("it has no plan"), "it has no plan", False),
        (ValueError("odd\nshapes"), "ValueError: odd", False),
        (torch.OutOfMemoryError("CUDA out of memory."), "CUDA out of memory.", True),
    ],
)
def test_a_strategy_that_cannot_be_used_says_why(
    error: Exception, refused: str, too_large: bool, allocator: Allocator
) -> None:
    found = trials(Rank()).of(StrategyBuilder(SINGLE, raising(error)), AT)
    assert (found.refused, found.out_of_memory) == (refused, too_large)
    record = found.record({"strategy": "mine"}, "step_time")
    assert record
    assert (record.status, record.note) == ("failed" if too_large else "skipped", refused)


def test_a_fault_of_a_gpu_is_no_property_of_a_strategy(allocator: Allocator) -> None:
    with pytest.raises(DeviceFault, match="in the trial"):
        trials(Rank()).of(StrategyBuilder(SINGLE, raising(DeviceFault("in the trial"))), AT)
    left = Rank(left=DeviceFault("in what failed work had submitted"))
    with pytest.raises(DeviceFault, match="had submitted"):
        trials(left).of(StrategyBuilder(SINGLE, raising(CannotBe("uneven"))), AT)


def test_what_failed_work_has_left_does_not_hide_why_it_failed(allocator: Allocator) -> None:
    left = Rank(left=RuntimeError("of the same work"))
    assert trials(left).of(StrategyBuilder(SINGLE, raising(CannotBe("uneven"))), AT).refused == "uneven"


def test_the_worst_reason_of_any_rank_is_everybodys(allocator: Allocator) -> None:
    rank = Rank(other=Trial(refused="CUDA out of memory.", out_of_memory=True))
    found = trials(rank).of(StrategyBuilder(SINGLE, allocator.build), AT)
    assert (found.refused, found.out_of_memory) == ("CUDA out of memory.", True)


@pytest.mark.parametrize(
    ("batch", "kind", "options", "refused"),
    [
        (7, DDP, {}, "2 devices cannot share 7 samples equally"),
        (7, DATA_X_TENSOR, {"replicas": 2}, "2 replicas cannot share 7 samples equally"),
        (7, SINGLE, {}, ""),
        (6, DDP, {}, ""),
    ],
)
def test_only_what_divides_the_batch_needs_equal_shares(
    batch: int, kind: Strategy, options: dict[str, Any], refused: str, allocator: Allocator
) -> None:
    at = Setting(Workload("toy", "", "{}", batch, seed=0), devices=2)
    assert trials(Rank()).of(StrategyBuilder(kind, allocator.build, **options), at).refused == refused
