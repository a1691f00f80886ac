"""Data parallelism with uneven shares: it computes what one device computes, and unequal devices work side by side."""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from scalecard.hardware.devices import CpuDevice, Device, GpuDevice, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.counting import counting, flops
from scalecard.parallel.uneven_data_parallel import UnevenDataParallel
from scalecard.workloads import reference
from scalecard.workloads.workload import HOST, built_in
from torch import Tensor

STEPS, LR = 3, 0.1
LENET = built_in("lenet", seed=0, lr=LR, exact=True)


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 4) as opened:
        yield opened


def made(devices: Sequence[Device], shares: Sequence[int], *, times: Sequence[int] = ()) -> Any:
    batch = LENET.batch(sum(shares), HOST)
    return UnevenDataParallel(LENET.network, devices, shares, batch, lr=LR, times=times or [1] * len(shares))


@functools.cache
def plain(count: int) -> list[Tensor]:
    steps = [reference.split(*LENET.batch(count, HOST), [count])] * STEPS
    return LENET.trained(steps, HOST, exactly=False).after


def trained(work: UnevenDataParallel) -> list[list[Tensor]]:
    for _ in range(STEPS):
        work.step()
    for replica in work.replicas:
        replica.device.synchronize()
    return [replica.parameters for replica in work.replicas]


@pytest.mark.parametrize("shares", [(13, 0), (0, 13), (12, 1), (4, 9), (6, 0, 4, 3), (1, 2, 3, 7)])
@pytest.mark.parametrize("slowed", [1, 3])
def test_uneven_shares_compute_what_one_device_computes(
    devices: list[Device], shares: tuple[int, ...], slowed: int
) -> None:
    replicas = trained(made(devices[: len(shares)], shares, times=[1, slowed, 1, 1][: len(shares)]))
    assert len(replicas) == sum(share > 0 for share in shares), "a device without a share takes no part"
    for replica in replicas:
        assert max(float((a - b).detach().abs().max()) for a, b in zip(replica, plain(13), strict=True)) < 1e-12
        assert all(torch.equal(a, b) for a, b in zip(replica, replicas[0], strict=True))


@pytest.mark.parametrize("shares", [(6, 6), (14, -1)])
def test_shares_that_do_not_make_up_the_batch_are_refused(devices: list[Device], shares: tuple[int, int]) -> None:
    batch = LENET.batch(13, HOST)
    with pytest.raises(ValueError, match=r"shares = .* 13 samples"):
        UnevenDataParallel(LENET.network, devices[:2], shares, batch, lr=LR, times=[1, 1])


def test_what_a_step_does_by_hand(devices: list[Device]) -> None:
    """129,068 parameters of 8 bytes go to the first device and back; the second does its 3 samples twice."""
    work = made(devices[:2], (4, 3), times=[1, 2])
    with counting(work.replicas[1].network) as tally:
        trained(work)
    found = tally.sums()
    assert found["received bytes"] == STEPS * 2 * 8 * 129_068
    assert (found["forwards"], found["samples"]) == (STEPS * 2, STEPS * 6)
    assert found["FLOPs"] == STEPS * (4 + 2 * 3) * flops(LENET.without_data()[1])


def wait(barrier: threading.Barrier) -> None:
    barrier.wait()


class Event:
    """Of work that was done at once."""

    def __init__(self, enable_timing: bool) -> None:
        self.waited_for_by: list[str] = []

    def record(self, stream: "Stream") -> None:
        pass

    def synchronize(self) -> None:
        self.waited_for_by.append(threading.current_thread().name)


class Stream:
    """A stream in which everything is done at once."""

    def __init__(self, device: object = None) -> None:
        self.device, self.waits = device, list[Event]()

    def wait_event(self, event: Event) -> None:
        self.waits.append(event)


class Entered(Stream):
    """As a context manager, which says on which thread it is entered."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch, no_free_events: None) -> Iterator[list[Any]]:
    """A GPU whose kernels the launching thread runs itself, in the host's memory, and a CPU worker."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "default_stream", Stream)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: Entered())
    gpu, cpu = GpuDevice(torch.device("cuda", 0)), CpuDevice(1, 1)
    gpu.torch = torch.device("cpu")
    yield [gpu, cpu]
    cpu.close()


@pytest.mark.parametrize("shares", [(9, 4), (12, 1)])
def test_a_gpu_and_a_cpu_compute_what_one_device_computes(
    mixed: list[Device], shares: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixed[0], "synchronize", lambda: None)
    for replica in trained(made(mixed, shares)):
        assert max(float((a - b).detach().abs().max()) for a, b in zip(replica, plain(13), strict=True)) < 1e-12


def test_a_gpu_and_a_cpu_compute_at_once(mixed: list[Device], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each forward goes on only when the other has begun; the launching thread is busy with the GPU's."""
    monkeypatch.setattr(mixed[0], "synchronize", lambda: None)
    both = threading.Barrier(2, timeout=10)
    work = made(mixed, (9, 4))
    for replica in work.replicas:
        replica.network.register_forward_pre_hook(lambda *_: wait(both))
    trained(work)
    assert not both.broken


def test_a_cpu_worker_waits_for_a_gpus_event_in_its_own_thread(mixed: list[Any]) -> None:
    gpu, cpu = mixed
    made_there = gpu.submit(torch.ones, 3)
    event = made_there.queued.event
    assert torch.equal(cpu.submit(torch.add, made_there, 1).result(), torch.full((3,), 2.0))
    (waited,) = event.waited_for_by
    assert waited != threading.current_thread().name


def test_what_a_gpu_does_after_a_cpu_workers_task_is_queued_when_that_is_done(mixed: list[Any]) -> None:
    gpu, cpu = mixed
    goes_on, done = threading.Event(), list[str]()
    slow = cpu.submit(lambda: (goes_on.wait(10), done.append("copied")))
    threading.Timer(0.1, goes_on.set).start()
    gpu.after(slow)
    assert done == ["copied"]


def test_what_a_cpu_worker_receives_has_come(mixed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy into the host's memory that does not block would be read before it is there."""
    asked: list[dict[str, Any]] = []
    to: Callable[..., Tensor] = torch.Tensor.to

    def seen(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
        asked.append(options)
        return to(tensor, *args, **options)

    monkeypatch.setattr(torch.Tensor, "to", seen)
    mixed[1].call(mixed[1].receive, torch.ones(3))
    assert [options.get("non_blocking", False) for options in asked] == [False]
