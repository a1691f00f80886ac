"""What feeds a training loop: every sample once an epoch, the same in each pass, by processes that leave nothing."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import torch
from scalecard.workloads.loading import Feed, Loading, Repeatable, Resident, Shuffled, Walk, read, repeatable, same
from torch.utils.data import Dataset

READ = Loading(workers=0, prefetch=2)
# Starts two workers, says which processes they are, and waits to be killed.
LOADING = """
import time, torch, multiprocessing
from torch.utils.data import TensorDataset
from scalecard.workloads.loading import Feed, Loading, Walk
feed = Feed(TensorDataset(torch.arange(8)), Walk(8, 2, seed=0, num_batches=4), Loading(workers=2, prefetch=2))
list(feed.take())
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
time.sleep(60)
"""


class Numbers(Dataset[Any]):
    """Item n is n and its double; if `drawing`, also random numbers of PyTorch's and Python's."""

    def __init__(self, *, drawing: bool = False) -> None:
        self.drawing = drawing

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        noise = torch.rand(2) if self.drawing else torch.zeros(2)
        return noise + index, 2.0 * index + (random.random() if self.drawing else 0)


def opened(dataset: Any, loading: Loading = READ, *, num_batches: int = 3, batch_size: int = 3) -> Feed:
    return Feed(dataset, Walk(len(dataset), batch_size, seed=0, num_batches=num_batches), loading)


def children() -> set[int]:
    return {child.pid or 0 for child in multiprocessing.active_children()}


def gone(pid: int, *, within: float) -> bool:
    """Whether a process ends in time; a zombie has ended."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_an_epoch_has_every_place_once_in_whole_batches_and_each_pass_is_the_same() -> None:
    walk = Walk(10, 3, seed=1, num_batches=7)
    first, second = list(walk), list(walk)
    assert first == second
    assert [len(batch) for batch in first] == [3] * 7
    epochs = [[place for batch in first[start : start + 3] for place in batch] for start in (0, 3)]
    for epoch in epochs:
        assert len(set(epoch)) == 9, "one of ten is left over"
        assert set(epoch) <= set(range(10))
    assert epochs[0] != epochs[1], "shuffled anew"
    assert first != list(Walk(10, 3, seed=2, num_batches=7))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_has_the_data_sets_own_samples_also_if_they_draw_random_numbers(workers: int) -> None:
    dataset = repeatable(Numbers(drawing=True))
    feed = opened(dataset, Loading(workers=workers, prefetch=2))
    try:
        batches = list(feed.take())
    finally:
        feed.close()
    assert len(batches) == 3
    for batch, places in zip(batches, feed.walk, strict=True):
        assert same(batch, read(dataset, places))
    assert not float(batches[0][1][0]).is_integer(), "they are drawn"


def test_only_samples_that_vary_are_seeded_and_nobodys_random_numbers_change() -> None:
    torch.manual_seed(5)
    random.seed(5)
    expected = torch.random.get_rng_state(), random.getstate()
    numbers = Numbers()
    assert repeatable(numbers) is numbers
    assert isinstance(repeatable(Numbers(drawing=True)), Repeatable)
    assert torch.equal(torch.random.get_rng_state(), expected[0])
    assert random.getstate() == expected[1]


def test_batches_are_the_same_only_bit_for_bit() -> None:
    batch = read(Numbers(), [1, 2])
    assert same(batch, read(Numbers(), [1, 2]))
    assert not same(batch, read(Numbers(), [1, 3]))
    assert not same(batch, batch[:1])


def test_a_pass_that_was_begun_is_taken_and_one_of_another_length_is_dropped() -> None:
    feed = opened(Numbers(), Loading(workers=1, prefetch=2))
    try:
        assert len(list(feed.take())) == 3
        (worker,) = children()
        feed.begin()
        begun = feed.begun
        assert feed.take() is begun
        del begun
        feed.begin()
        feed.resize(2)
        assert len(list(feed.take())) == 2
        assert children() == {worker}, "it lives on from pass to pass"
    finally:
        feed.close()
    assert not children()


def test_what_the_process_reads_itself_may_be_begun_too() -> None:
    feed = opened(Numbers())
    feed.begin()
    begun = feed.begun
    assert feed.take() is begun
    assert feed.take() is not begun


def test_workers_that_do_not_persist_are_others_in_each_pass() -> None:
    feed, seen = opened(Numbers(), Loading(workers=1, prefetch=2, persistent=False)), []
    for _ in range(2):
        taken = feed.take()
        next(taken)
        seen.append(children())
        list(taken)
        assert not children(), "they end with the pass"
    assert seen[0].isdisjoint(seen[1])


def test_the_workers_of_a_killed_process_end_at_once() -> None:
    """PyTorch's own look whether the parent lives comes every five seconds."""
    with subprocess.Popen([sys.executable, "-c", LOADING], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        workers = [int(pid) for pid in running.stdout.readline().split()]
        running.kill()
    assert len(workers) == 2
    try:
        assert all(gone(pid, within=3) for pid in workers)
    finally:
        for pid in workers:
            if not gone(pid, within=0.1):
                os.kill(pid, signal.SIGKILL)


def test_resident_batches_come_again_and_again() -> None:
    batches = Resident(["a", "b"], 3)
    assert list(batches.take()) == ["a", "b", "a"]
    batches.resize(1)
    assert list(batches.take()) == ["a"]


def test_a_shuffled_pass_has_every_sample_in_the_order_that_the_generator_draws() -> None:
    """Ten samples in batches of four: the last has two. The next pass goes on drawing."""
    passes = Shuffled(10, 4, torch.Generator().manual_seed(3))
    feed, same_seed = Feed(Numbers(), passes, READ), torch.Generator().manual_seed(3)
    for _ in range(2):
        batches = [inputs[:, 0].int().tolist() for inputs, _ in feed.take()]
        assert [len(batch) for batch in batches] == [4, 4, 2]
        assert [place for batch in batches for place in batch] == torch.randperm(10, generator=same_seed).tolist()
