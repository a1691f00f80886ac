"""What a loader yields, and what is trained on it, is proven against the data set itself: wrong feeding is refused."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch
from scalecard.benchmarks.training import input_loading as feds
from scalecard.benchmarks.training.input_loading import Feeding, FromDataset, Pass, samples_of
from scalecard.benchmarks.training.strategy import References
from scalecard.hardware.devices import CpuDevice
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.measuring.prepare import prepared
from scalecard.measuring.timer import Bench
from scalecard.parallel.step import Step
from scalecard.workloads import loading as feeds
from scalecard.workloads.loading import Loading, Walk, read
from torch import Tensor

VALUES = json.dumps({"layers": 1, "width": 8, "heads": 2, "sequence": 4, "vocabulary": 11})
LOAD = FromDataset("gpt", "", VALUES, 3, 0, lr=0.1, places=10)
SMALL = replace(LOAD, batch_size=2, exact=True)
READ = Loading(workers=0, prefetch=2)
WORKER = Loading(workers=1, prefetch=2)


@pytest.fixture
def feeding() -> Iterator[Feeding]:
    with closing(CpuDevice(0, 1)) as device, closing(CpuDevice(0, 1)) as copier:
        made = Feeding(device, References(device.torch, 2), copier)
        yield made
        made.close()


def ready(feeding: Feeding, build: Any) -> Timing:
    """Proven in float64 and as it is timed, and counted."""
    variant = Variant(name="fed", case={}, build=build, proven_at=[Pass(SMALL, 2)], timed_at=Pass(LOAD, 4))
    (timing,) = prepared([variant], Bench([feeding.device]))
    return timing


def fed(feeding: Feeding, loading: Loading = READ, copy: str = "") -> Any:
    return lambda at: feeding.fed(loading, copy, at)


def counted(timing: Timing) -> dict[str, float]:
    assert timing.prepared
    return {count.name: count.counted for count in timing.prepared.work}


@pytest.mark.parametrize("copy", ["", "overlapped"])
def test_steps_that_a_loader_feeds_are_those_of_a_plain_loop_over_the_data_set(feeding: Feeding, copy: str) -> None:
    timing = ready(feeding, fed(feeding, WORKER, copy))
    assert timing.prepared
    assert {check.dtype for check in timing.prepared.checks} == {"float64", "float32"}
    assert counted(timing) | {"updates": 4, "forwards": 4, "loaded samples": 12} == counted(timing)
    timing.prepared.call()
    assert len(feeding.feeds) == 2, "one for the proof, one that is timed"
    assert feeding.feeds[1].begun is not None, "the next pass is being loaded"


def test_steps_on_resident_data_are_counted_alike(feeding: Feeding) -> None:
    timing = ready(feeding, feeding.resident)
    assert counted(timing) | {"updates": 4, "forwards": 4} == counted(timing)


@pytest.mark.parametrize("loading", [READ, WORKER])
def test_a_loader_alone_is_compared_sample_by_sample(feeding: Feeding, loading: Loading) -> None:
    variant = Variant(name="alone", case={}, build=lambda at: feeding.alone(loading, at), timed_at=Pass(LOAD, 7))
    (timing,) = prepared([variant], Bench([feeding.device]))
    assert timing.prepared
    (check,) = timing.prepared.checks
    assert (check.difference, check.tolerance) == (0, 0)
    assert counted(timing) == {"loaded samples": 21}
    timing.prepared.call()
    assert feeding.feeds[0].begun is None, "or the next pass would be loaded before it is timed"


def _skips_a_sample(walk: Walk) -> Iterator[list[int]]:
    for places in WALK(walk):
        yield [*places[:-1], places[0]]


def _ends_early(walk: Walk) -> Iterator[list[int]]:
    yield from list(WALK(walk))[:-1]


WALK = Walk.__iter__


def test_a_sample_that_comes_twice_in_an_epoch_is_noticed(feeding: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walk, "__iter__", _skips_a_sample)
    subject = feeding.alone(READ, Pass(LOAD, 3))
    (check,) = subject.prove()
    assert check.difference == 3


def test_a_batch_that_does_not_come_is_noticed(feeding: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = feeding.alone(READ, Pass(LOAD, 3))
    take = feeding.feeds[0].take
    monkeypatch.setattr(feeding.feeds[0], "take", lambda: iter(list(take())[:-1]))
    (check,) = subject.prove()
    assert check.difference == 3


def test_a_sample_with_other_values_is_noticed(feeding: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = feeding.alone(READ, Pass(LOAD, 3))
    take = feeding.feeds[0].take

    def altered() -> Iterator[list[Tensor]]:
        for inputs, targets in take():
            targets[1, 2] += 1
            yield [inputs, targets]

    monkeypatch.setattr(feeding.feeds[0], "take", altered)
    (check,) = subject.prove()
    assert check.difference == 3, "one of each batch"


def test_training_on_a_batch_that_was_there_before_is_refused(
    feeding: Feeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read(samples_of("gpt", "", VALUES, 0), [0, 1])

    def stale(step: Step) -> None:
        step.inputs, step.targets = first
        call(step)

    call = Step.__call__
    monkeypatch.setattr(Step, "__call__", stale)
    assert "parameters after 2 steps" in ready(feeding, fed(feeding)).failure


def test_steps_that_are_left_out_are_refused(feeding: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds.Feed, "resize", lambda feed, count: setattr(feed.walk, "num_batches", min(count, 3)))
    assert "3 counted, 4 expected" in ready(feeding, fed(feeding)).failure


def test_a_workload_of_samples_draws_the_first_of_its_walk() -> None:
    inputs, targets = LOAD.batch(3, torch.device("cpu"))
    places = next(iter(LOAD.walk(1)))
    assert all(torch.equal(a, b) for a, b in zip((inputs, targets), read(LOAD.samples, places), strict=True))


def test_the_loop_waits_for_the_first_of_two_steps_before_it_submits_another(
    feeding: Feeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = [0]
    wait, submit = feds._wait, feeding.device.submit

    def submitted(*args: Any) -> Any:
        under_way.append(under_way[-1] + 1)
        return submit(*args)

    def waited(task: Any) -> None:
        under_way.append(under_way[-1] - 1)
        wait(task)

    monkeypatch.setattr(feds, "_wait", waited)
    monkeypatch.setattr(feeding.device, "submit", submitted)
    feeding.fed(READ, "", Pass(LOAD, 5)).work()
    assert under_way == [0, 1, 2, 1, 2, 1, 2, 1, 2, 1]
