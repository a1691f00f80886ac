"""CPU workers: asynchronous dispatch, tasks that wait for tasks, errors, marks."""

import itertools
import threading
import time
from dataclasses import replace

import pytest
import torch
from scalecard.hardware.devices import MAX_PENDING, GpuDevice, copy_engine, open_devices
from scalecard.hardware.machine import Machine, device_counts, threads_each


def test_cpu_workers_overlap_and_dispatch_does_not_wait(machine: Machine) -> None:
    with open_devices(machine, 2) as devices:
        start = time.perf_counter()
        for device in devices:
            device.submit(time.sleep, 0.3)
        enqueued = time.perf_counter() - start
        for device in devices:
            device.synchronize()
        assert enqueued < 0.1
        assert 0.3 <= time.perf_counter() - start < 0.55


def test_a_task_waits_for_the_tasks_in_its_arguments(machine: Machine) -> None:
    with open_devices(machine, 2) as (a, b):
        slow = a.submit(lambda: (time.sleep(0.1), torch.ones(3))[1])
        assert torch.equal(b.submit(torch.add, slow, slow).result(), torch.full((3,), 2.0))


def test_an_error_of_the_work_comes_out_at_synchronize(machine: Machine) -> None:
    with open_devices(machine, 1) as (device,):
        failed = device.submit(torch.ones, -1)
        with pytest.raises(RuntimeError, match="negative"):
            failed.result()  # finished, so it may be forgotten
        for _ in range(2 * MAX_PENDING):
            device.submit(int)
        with pytest.raises(RuntimeError, match="negative"):
            device.synchronize()


def test_a_worker_does_one_piece_of_work_at_a_time(machine: Machine) -> None:
    started: list[int] = []

    def piece(number: int) -> list[int]:
        started.append(number)
        time.sleep(0.05)
        return list(started)

    with open_devices(machine, 1) as (device,):
        tasks = [device.submit(piece, number) for number in range(3)]
        assert [task.result() for task in tasks] == [[0], [0, 1], [0, 1, 2]]


def test_work_that_is_still_unfinished_when_much_more_is_submitted_is_waited_for(machine: Machine) -> None:
    go = threading.Event()
    done: list[bool] = []
    with open_devices(machine, 1) as (device,):
        device.submit(lambda: (go.wait(10), done.append(True), torch.ones(-1)))
        for _ in range(2 * MAX_PENDING):
            device.submit(int)
        go.set()
        with pytest.raises(RuntimeError, match="negative"):
            device.synchronize()
        assert done


def test_workers_share_the_cores_alike_however_many_are_opened(machine: Machine) -> None:
    threads = torch.get_num_threads() + 1  # so that nobody has them by chance
    four = replace(machine, kind="cpu", num_devices=4, cores=4 * threads)
    for count in (1, 4):
        with open_devices(four, count, first=2) as devices:
            assert [device.index for device in devices] == list(range(2, 2 + count))
            assert {device.call(torch.get_num_threads) for device in devices} == {threads}


@pytest.mark.parametrize(("cores", "workers", "threads"), [(8, 4, 2), (9, 4, 2), (64, 8, 8), (6, 1, 6), (2, 4, 1)])
def test_a_worker_has_whole_cores_and_at_least_one(machine: Machine, cores: int, workers: int, threads: int) -> None:
    assert threads_each(replace(machine, kind="cpu", cores=cores, num_devices=workers)) == threads


def test_a_worker_marks_when_it_gets_there_and_not_when_it_is_asked(machine: Machine) -> None:
    """This clock counts how often it was read: before, by the work, after, by the work that follows."""
    clock = itertools.count(0, 10**9).__next__
    with open_devices(machine, 1) as (device,):
        before = device.mark(clock)
        device.synchronize()
        goes_on = threading.Event()
        device.submit(lambda: (goes_on.wait(), clock()))
        after = device.mark(clock)
        goes_on.set()
        device.submit(clock)
        assert after.seconds_since(before) == 2.0


class Event:
    """An event with the time of its stream, for those who waited for it."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.waited = False

    def record(self, stream: "Stream") -> None:
        stream.ms += stream.each
        self.at = stream.ms

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, later: "Event") -> float:
        assert later.waited, "CUDA refuses to give the time of an event that has not come"
        return later.at - self.at


class Stream:
    """A stream in which `each` milliseconds pass from one recorded event to the next."""

    device = torch.device("cuda:0")

    def __init__(self, each: float) -> None:
        self.ms, self.each = 0.0, each


def test_a_gpu_is_as_late_as_the_latest_of_its_streams(monkeypatch: pytest.MonkeyPatch, no_free_events: None) -> None:
    own, link, new = Stream(7.0), Stream(9.0), Stream(99.0)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: own)
    gpu = GpuDevice(torch.device("cuda", 0))
    before = gpu.mark(time.perf_counter_ns)
    assert gpu.mark(time.perf_counter_ns).seconds_since(before) == pytest.approx(0.007)
    gpu._links[torch.device("cuda:1")] = link
    before = gpu.mark(time.perf_counter_ns)
    gpu._links[torch.device("cuda:2")] = new
    assert gpu.mark(time.perf_counter_ns).seconds_since(before) == pytest.approx(0.009), "one has no earlier mark"


def test_float32_is_float32_whatever_was_set_before(machine: Machine) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    with open_devices(machine, 1):
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_tf32


def test_another_worker_plays_the_copy_engine_if_there_is_one(machine: Machine) -> None:
    with open_devices(machine, 2) as devices:
        assert copy_engine(devices) is devices[1]
        assert copy_engine(devices[:1]) is None


@pytest.mark.parametrize(("n", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_device_counts_are_the_powers_of_two_and_all(n: int, counts: list[int]) -> None:
    assert device_counts(n) == counts
