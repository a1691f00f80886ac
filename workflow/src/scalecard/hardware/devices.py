"""One interface to CPUs and GPUs of any vendor: submit work to a device, wait for the device.

A GPU runs submitted work at once, which only enqueues kernels on the device's current stream. A CPU worker is
one Python thread with its own queue and its share of the cores as intra-op threads (torch releases the GIL), so
dispatch is asynchronous and devices really overlap on a CPU too.

    task = a.submit(first_half, x)         # returns at once
    out = b.submit(second_half, task)      # starts when `task` is done; the caller does not wait
    b.synchronize()

Tasks may be arguments of later tasks, which wait for them: a CPU worker for the values and for a GPU's events, a stream
for the events. For a CPU worker's values the thread that submits to a GPU waits itself, so where both compute,
what the GPU can do without them is submitted first.
"""

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from scalecard.hardware import host
from scalecard.hardware.device_timestamps import ClockMark, Event, EventMark, Mark
from scalecard.hardware.failures import DeviceFault, first_line
from scalecard.hardware.machine import Machine, threads_each
from scalecard.hardware.vendors.runtimes import float32_is_float32

MAX_PENDING = 64
_running = threading.local()  # .device: whose work this thread runs


@dataclass(eq=False)
class Task:
    """Submitted work and, once it is done, its value. On a GPU `queued` is the point after it in its stream."""

    value: Any = None
    future: "Future[Any] | None" = None
    queued: Event | None = None

    def result(self) -> Any:
        """The value. On a CPU this waits; on a GPU the tensors may still be being computed."""
        return self.future.result() if self.future else self.value


def _values(args: tuple[Any, ...]) -> list[Any]:
    return [arg.result() if isinstance(arg, Task) else arg for arg in args]


class Device(ABC):
    """One GPU or one CPU worker. `torch` is where its tensors live; `index` counts from 0.

    `fault` says what the driver reported of a GPU that can compute nothing more for this process; else it is empty.
    """

    def __init__(self, index: int, torch_device: torch.device) -> None:
        self.index, self.torch = index, torch_device
        self.fault = ""

    @abstractmethod
    def submit(self, work: Callable[..., Any], *args: Any) -> Task:
        """Run work(*args) on this device, after what was submitted before; arguments may be Tasks."""

    def receive(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor here, for the work that runs: itself, or a copy."""
        return keep_until_copied(tensor).to(self.torch, non_blocking=True)

    def after(self, *tasks: object) -> Task:
        """A Task that is done once these and everything submitted before are; what is no Task is ready."""
        return self.submit(lambda *_: None, *tasks)

    def repeating(self, work: Callable[..., Any], *args: Any) -> Callable[[], object]:
        """What submits work(*args), without Tasks, each time it is called, with as little around it as possible."""
        return partial(self.submit, work, *args)

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for everything submitted; an exception in the work is raised here at the latest."""

    @abstractmethod
    def mark(self, clock: Callable[[], int]) -> Mark:
        """The point after everything submitted, in the device's own time: `clock` (nanoseconds), unless it has one."""

    def close(self) -> None:
        self.synchronize()

    def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """Submit, wait, and return the value: for untimed work."""
        task = self.submit(work, *args)
        self.synchronize()
        return task.result()

    def __str__(self) -> str:
        return f"device {self.index}"


class GpuDevice(Device):
    """A GPU's default stream or, with `beside`, a further stream of the same GPU.

    PyTorch copies between GPUs on the current stream of the source, which first waits for that of the target. On
    default streams a copy queues behind later work of the source and earlier work of the target, so nothing overlaps.
    A Task's copy therefore uses a stream per GPU pair at each end. The source's waits only for that Task; the target's,
    where `received` takes in what was copied, for nothing. Other copies use the source's default stream.

        source    | F0 | F1 | F2 |
        link           | c0 | c1 | c2 |         waits for the Task
        arrivals       | c0 | c1 | c2 |         owns the copy's memory
        target              | F0 | F1 | F2 |    waits for its copy
    """

    def __init__(self, torch_device: torch.device, *, beside: bool = False) -> None:
        super().__init__(torch_device.index, torch_device)
        self._module = torch.get_device_module(torch_device)
        self._stream = self._module.Stream(self.torch) if beside else self._module.default_stream(self.torch)
        self._links: dict[torch.device, torch.Stream] = {}
        self._arrivals: dict[torch.device, torch.Stream] = {}

    def submit(self, work: Callable[..., Any], *args: Any) -> Task:
        self._refuse_after_fault()
        with contextlib.ExitStack() as streams:
            for task in args:
                if isinstance(task, Task) and task.queued:
                    self._wait_for(task.queued, streams)
            streams.enter_context(self._module.stream(self._stream))
            _running.device = self
            value = work(*_values(args))
            return Task(value, queued=Event(self._stream))

    def _refuse_after_fault(self) -> None:
        """An error of a GPU is said again by every later call; it is the first one that says where it came from."""
        if self.fault:
            raise DeviceFault(f"{self} failed before: {self.fault}")

    def after(self, *tasks: object) -> Task:
        """Nothing is copied here, so no stream is entered: launching takes its time, tens of microseconds.

        A CPU worker has no events, so the calling thread waits for its Tasks.
        """
        for task in tasks:
            if isinstance(task, Task):
                if task.queued and task.queued.stream != self._stream:
                    self._stream.wait_event(task.queued.event)
                task.result()
        return Task(queued=Event(self._stream))

    def repeating(self, work: Callable[..., Any], *args: Any) -> Callable[[], object]:
        """On the default stream, which is the current one anyway, just the work."""
        beside = self._stream != self._module.default_stream(self.torch)
        return super().repeating(work, *args) if beside else partial(work, *args)

    def _wait_for(self, done: Event, streams: contextlib.ExitStack) -> None:
        """Make this stream wait for `done`, and let copies from the other GPU use a stream that waits only for it."""
        stream = done.stream
        if stream == self._stream:
            return
        self._stream.wait_event(done.event)
        if stream.device != self.torch:
            if stream.device not in self._links:
                self._links[stream.device] = self._module.Stream(stream.device)
                self._arrivals[stream.device] = self._module.Stream(self.torch)
            link = self._links[stream.device]
            link.wait_event(done.event)
            streams.enter_context(self._module.stream(link))

    def receive(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copied by the pair's own streams if a Task has come from that GPU; this stream waits, and keeps the copy."""
        beside = self._arrivals.get(tensor.device)
        if beside is None:
            return super().receive(tensor)
        with self._module.stream(beside):
            copied = super().receive(tensor)
        self._stream.wait_event(Event(beside).event)
        copied.record_stream(self._stream)
        return copied

    def synchronize(self) -> None:
        """DeviceFault if the GPU has failed, once: those that go on without it may wait for all devices again."""
        if self.fault:
            return
        for observer in observers:
            observer.waited()
        here = self._module.current_device()
        try:
            self._module.synchronize(self.index)
        except torch.AcceleratorError:
            self.fault = self._own_fault()
            if self.fault:
                raise DeviceFault(f"{self}: {self.fault}") from None
            if here == self.index:
                raise

    def _own_fault(self) -> str:
        """The error that this GPU itself reports, or '': the calling thread may have been on one that has failed.

        What changes a thread's GPU for a while returns to the one before, which raises if that has failed. So the
        thread goes on on one that has not.
        """
        try:
            self._module.set_device(self.index)
            self._module.synchronize(self.index)
        except torch.AcceleratorError as error:
            for other in set(range(self._module.device_count())) - {self.index}:
                with contextlib.suppress(torch.AcceleratorError):
                    self._module.set_device(other)
                    break
            return first_line(error)
        return ""

    def mark(self, clock: Callable[[], int]) -> Mark:
        """Events in its stream and in those that copy to it, which are other GPUs'. A second stream has its own."""
        return EventMark([self._stream, *self._links.values()])


def received(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the device that runs this work, copied beside what it computes if a Task brought it."""
    device: Device = _running.device
    return device.receive(tensor)


def keep_until_copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor, which the running work copies to its own device, if it is not there yet.

    The allocator does not reuse its memory before the current stream, which copies it, is done.
    """
    for observer in observers:
        observer.received(_running.device.index, tensor.nbytes)
    if tensor.device.type != "cpu":
        tensor.record_stream(torch.get_device_module(tensor.device).current_stream(tensor.device))
    return tensor


class CpuDevice(Device):
    """A worker thread with `num_threads` intra-op threads.

    What comes from a GPU is copied by a stream of the worker's own, which waits for nothing but what it copies: on the
    GPU's default stream the copy would queue behind what the GPU goes on to compute.
    """

    def __init__(self, index: int, num_threads: int) -> None:
        super().__init__(index, torch.device("cpu"))
        self._worker = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(num_threads,))
        self._pending: list[Future[Any]] = []
        self._links: dict[torch.device, torch.Stream] = {}

    def submit(self, work: Callable[..., Any], *args: Any) -> Task:
        future = self._worker.submit(self._run, work, args)
        if len(self._pending) > MAX_PENDING:  # release the values of finished tasks, keep the failures
            self._pending = [f for f in self._pending if not f.done() or f.exception()]
        self._pending.append(future)
        return Task(future=future)

    def _run(self, work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        _running.device = self
        with contextlib.ExitStack() as entered:
            for task in args:
                if isinstance(task, Task) and task.queued:
                    self._wait_for(task.queued, entered)
            for observer in observers:
                entered.enter_context(observer.around())
            return work(*_values(args))

    def _wait_for(self, done: Event, streams: contextlib.ExitStack) -> None:
        """Wait in this thread, which reads tensors itself, and let its copies from that GPU use the worker's stream."""
        gpu = done.stream.device
        module = torch.get_device_module(gpu)
        done.event.synchronize()
        if gpu not in self._links:
            self._links[gpu] = module.Stream(gpu)
        streams.enter_context(module.stream(self._links[gpu]))

    def receive(self, tensor: torch.Tensor) -> torch.Tensor:
        """Here once this returns: this thread would read a copy that does not block before it has come."""
        return keep_until_copied(tensor).to(self.torch)

    def synchronize(self) -> None:
        for observer in observers:
            observer.waited()
        pending, self._pending = self._pending, []
        failed = [error for future in pending if (error := future.exception())]  # after all of them
        if failed:
            raise failed[0]

    def mark(self, clock: Callable[[], int]) -> Mark:
        return ClockMark(self.submit(clock).result)

    def close(self) -> None:
        self._worker.shutdown(cancel_futures=True)


@contextlib.contextmanager
def open_devices(machine: Machine, num_devices: int | None = None, *, first: int = 0) -> Iterator[list[Device]]:
    """`num_devices` of the machine's devices (all by default) from number `first` on, closed afterwards.

    A CPU worker gets the same share of the cores however many are opened, so one worker and two compare fairly. With
    GPUs, this process runs on the cores next to them meanwhile.
    """
    indices = range(first, first + (machine.num_devices if num_devices is None else num_devices))
    float32_is_float32()
    with contextlib.nullcontext() if machine.emulated else near(indices):
        opened: list[Device] = [
            CpuDevice(i, threads_each(machine)) if machine.emulated else GpuDevice(torch.device(machine.kind, i))
            for i in indices
        ]
        try:
            yield opened
        finally:
            for device in opened:
                device.close()


@contextlib.contextmanager
def near(indices: Sequence[int]) -> Iterator[None]:
    """Run on the cores next to these GPUs, with no more intra-op threads than there are."""
    threads = torch.get_num_threads()
    with host.on(host.cores_of(indices)):
        torch.set_num_threads(min(threads, host.usable_cores()))
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def copy_engine(devices: Sequence[Device]) -> Device | None:
    """The device that copies while the first one computes: a GPU's second stream, or another CPU worker, if any."""
    if devices[0].torch.type != "cpu":
        return GpuDevice(devices[0].torch, beside=True)
    return devices[-1] if len(devices) > 1 else None


@dataclass(frozen=True)
class Observer:
    """What counts the work of devices: entered around each piece in the thread that runs it, and told what it gets.

    It is told of each time that a device is waited for, too.
    """

    around: Callable[[], contextlib.AbstractContextManager[object]]
    received: Callable[[int, float], None]  # the number of a device, and bytes
    again: Callable[[], contextlib.AbstractContextManager[object]]  # around what was computed before
    waited: Callable[[], None]


observers: list[Observer] = []  # at most one


@contextlib.contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Let the work that is submitted meanwhile be counted; one observer at a time."""
    assert not observers, "work is counted once"
    observers.append(observer)
    try:
        yield
    finally:
        observers.clear()
