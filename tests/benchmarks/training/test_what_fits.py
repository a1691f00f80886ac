"""What fits into a GPU's memory: the largest batch, who is timed side by side, and what the host does instead."""

import pytest
import torch
from scalecard.benchmarks.training.memory_trials import Fitting, Trial, largest_batch, side_by_side
from scalecard.benchmarks.training.strategy import StrategyBuilder
from scalecard.hardware.failures import or_on_host
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.records.strategies import SINGLE

GPU, HOST = torch.device("cuda"), torch.device("cpu")


class Memory:
    """A device of so many bytes, on which a batch needs `fixed` bytes and `each` for every sample."""

    def __init__(self, size: float, fixed: float, each: float, step: int = 1) -> None:
        self.size, self.fixed, self.each, self.step, self.tried = size, fixed, each, step, list[int]()

    def needed(self, batch: int) -> float:
        """In steps, as an allocator gives memory out."""
        return self.fixed + self.each * -(-batch // self.step) * self.step

    def peak(self, batch: int) -> float | None:
        self.tried.append(batch)
        return self.needed(batch) if self.needed(batch) <= self.size else None

    def largest(self, start: int, most: int = 10**6, multiple: int = 1, excess: float = 0) -> int:
        """`excess` is what does not grow of what is taken to grow, as gradients are."""
        known = self.needed(start)
        slope = (self.each * -(-start // self.step) * self.step + excess) / start
        return largest_batch(self.peak, start, known, slope=slope, memory=self.size, most=most, multiple=multiple)


@pytest.mark.parametrize("fixed", [0, 10, 900, 989])
@pytest.mark.parametrize(("start", "step"), [(1, 1), (4, 1), (3, 32)])
def test_the_largest_batch_is_found_to_a_sixteenth_and_was_tried(fixed: float, start: int, step: int) -> None:
    memory = Memory(1000, fixed, 0.25, step)
    if memory.needed(start) > 1000:
        pytest.skip("the first does not fit")
    found = memory.largest(start)
    assert found in (*memory.tried, start)
    assert memory.needed(found) <= 1000
    assert memory.needed(found + max(1, found // 16) + 2 * step) > 1000


@pytest.mark.parametrize(("start", "multiple"), [(10, 1), (8, 8), (450, 1), (560, 8), (840, 8), (899, 8), (900, 1)])
@pytest.mark.parametrize("excess", [0, 50, 100])
def test_what_would_not_fit_is_not_tried_as_long_as_memory_grows_evenly(
    start: int, multiple: int, excess: float
) -> None:
    """900 samples fit; whatever is known of less, and however much of that does not grow."""
    memory = Memory(1000, 100, 1)
    assert memory.largest(start, multiple=multiple, excess=excess) >= max(start, 840 if start <= 560 else 0)
    assert max(memory.tried, default=0) <= 900
    assert len(memory.tried) <= 6


def test_it_is_a_multiple_of_the_micro_batches_and_ends_at_the_most_that_is_looked_for() -> None:
    assert Memory(1000, 0, 3).largest(8, multiple=8) % 8 == 0
    assert Memory(1e9, 0, 1).largest(8, most=512) == 512


def test_a_batch_that_fails_for_another_reason_is_halved_away() -> None:
    def peak(batch: int) -> float | None:
        return None if batch > 37 else 1.0

    assert 36 <= largest_batch(peak, 4, 1.0, slope=0, memory=1000, most=1000) <= 37


def fitting(name: str, resident: float, peak: float, proof: float = 0) -> Fitting:
    def build(at: object) -> Subject:
        raise AssertionError("nothing is built")

    variant = Variant(name=name, case={}, build=build)
    return Fitting(
        StrategyBuilder(SINGLE, lambda references, at: build(at)), variant, Trial(resident, peak), Trial(peak=proof)
    )


def groups(*all_of_them: Fitting, memory: float) -> list[list[str]]:
    return [[one.variant.name for one in group] for group in side_by_side(all_of_them, memory)]


def test_only_those_that_fit_together_are_timed_side_by_side() -> None:
    three = [fitting(name, resident=10, peak=30) for name in "abc"]
    assert groups(*three, memory=50) == [["a", "b", "c"]], "30 resident, and 20 for a step of one of them"
    assert groups(*three, memory=49) == [["a", "b"], ["c"]]
    assert groups(*three, memory=1) == [["a"], ["b"], ["c"]], "alone, each was seen to fit"
    assert groups(three[0], fitting("d", 10, 30, proof=35), memory=54) == [["a"], ["d"]]
    assert groups(memory=1) == []


def test_what_a_gpu_cannot_hold_is_computed_on_the_host_and_other_errors_pass() -> None:
    def work(device: torch.device) -> str:
        if device == GPU:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return device.type

    def wrong(device: torch.device) -> str:
        raise RuntimeError(f"shapes differ on {device}")

    assert or_on_host(work, GPU) == "cpu"
    with pytest.raises(RuntimeError, match="shapes differ on cuda"):
        or_on_host(wrong, GPU)
