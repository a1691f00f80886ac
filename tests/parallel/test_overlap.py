"""What overlaps on GPUs, without any: tensors without data on pretended GPUs, whose streams keep simulated time.

The rules are CUDA's and PyTorch's: a stream does one thing after the other, an event is waited for, and a copy between
GPUs runs on the current stream of its source and waits for that of its target. A product takes one unit, and so does a
copy unless a test says how many.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from scalecard.benchmarks.machine import copies
from scalecard.experiments import copy_cost
from scalecard.hardware.devices import GpuDevice, copy_engine
from scalecard.parallel.data_parallel import ScratchDataParallel
from scalecard.parallel.model_parallel import ModelParallel
from scalecard.parallel.pipeline import ScheduledPipeline
from scalecard.parallel.scratch_allreduce import naive, ring
from scalecard.records.schedules import SCHEDULES
from scalecard.workloads.builtin.lenet import lenet_parameters
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

WORK = ("mm", "addmm", "convolution")


class Stream:
    """Busy until `time`."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.time = torch.device(device), 0.0

    def wait_event(self, event: "Event") -> None:
        self.time = max(self.time, event.time)


class Event:
    """The time at which a stream is done with what it has so far."""

    def __init__(self, enable_timing: bool) -> None:
        self.time = 0.0

    def record(self, stream: Stream) -> None:
        self.time = stream.time


class Clock(TorchDispatchMode):
    """Lets every operation take its time on the current streams."""

    def __init__(self) -> None:
        super().__init__()
        self.default: dict[torch.device, Stream] = {}
        self.current: dict[torch.device, Stream] = {}
        self.streams: list[Stream] = []
        self.entered = 0
        self.copy = 1.0
        self.kept_for: list[tuple[torch.device, Stream]] = []  # whose memory is not reused before which stream is done

    def stream_of(self, device: torch.device) -> Stream:
        if device not in self.default:
            self.default[device] = self.current[device] = self.new_stream(device)
        return self.default[device]

    def new_stream(self, device: torch.device) -> Stream:
        self.streams.append(Stream(device))
        return self.streams[-1]

    @contextlib.contextmanager
    def use(self, stream: Stream) -> Iterator[None]:
        self.entered += 1
        before, self.current[stream.device] = self.current.get(stream.device, stream), stream
        yield
        self.current[stream.device] = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        ends = [x.device for x in (*args, out) if isinstance(x, torch.Tensor) and x.device.type == "cuda"]
        if name in ("_to_copy", "copy_") and ends:
            target, source = (args[0], args[1]) if name == "copy_" else (out, args[0])
            used = [self.at(x.device) for x in (source, target) if x.device.type == "cuda"]
            if source.device != target.device:
                self.run(used, self.copy)
        elif name in WORK:
            self.run([self.at(out.device)], 1)
        elif ends:
            self.run([self.at(ends[-1])], 0)
        return out

    def at(self, device: torch.device) -> Stream:
        self.stream_of(device)
        return self.current[device]

    def run(self, streams: list[Stream], cost: float) -> None:
        end = max(s.time for s in streams) + cost
        for stream in streams:
            stream.time = end

    def taken(self, work: Callable[[], object]) -> float:
        """How long the work takes from now, when everything is idle."""
        start = max((s.time for s in self.streams), default=0.0)
        for stream in self.streams:
            stream.time = start
        work()
        return max(s.time for s in self.streams) - start


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, no_free_events: None) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "Stream", clock.new_stream)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: clock.stream_of(torch.device(device)))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: clock.at(torch.device(device)))
    monkeypatch.setattr(torch.cuda, "stream", clock.use)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda x, stream: clock.kept_for.append((x.device, stream)))
    with FakeTensorMode(), clock:
        yield clock


def gpus(count: int) -> list[Any]:
    return [GpuDevice(torch.device("cuda", index)) for index in range(count)]


def test_copies_stand_behind_the_source_where_nothing_says_what_they_wait_for(clock: Clock) -> None:
    """The simulation tells the difference: PyTorch's own order, and a task's."""
    first, second = gpus(2)
    x = torch.zeros(4, 4, device=first.torch)

    def copy(made: Any) -> None:
        first.submit(torch.mm, x, x)
        first.submit(torch.mm, x, x)
        second.submit(lambda value: value.to(second.torch), made)

    assert clock.taken(lambda: copy(x)) == 3
    assert clock.taken(lambda: copy(first.submit(torch.mm, x, x))) == 3, "a product, then the copy beside two products"


@pytest.mark.parametrize("count", [2, 4, 8])
def test_all_links_of_the_ring_carry_at_once(clock: Clock, count: int) -> None:
    devices = gpus(count)
    buckets = [[torch.zeros(count, device=d.torch)] for d in devices]
    assert clock.taken(lambda: ring(devices, buckets)) == 2 * (count - 1)
    assert clock.taken(lambda: naive(devices, buckets)) == count, "to device 0 one by one, then to all at once"


@pytest.mark.parametrize("count", [2, 8])
def test_the_ring_enters_streams_only_where_something_is_copied(clock: Clock, count: int) -> None:
    """Each entry costs the launching thread time, which a small all-reduce would consist of."""
    devices = gpus(count)
    clock.entered = 0
    ring(devices, [[torch.zeros(count, device=d.torch)] for d in devices])
    assert clock.entered == 2 * count * 2 * (count - 1), "the device's and the link's, per chunk and step"


def test_a_copy_that_is_repeated_enters_no_stream(clock: Clock) -> None:
    (device,) = gpus(1)
    source, target = torch.zeros(4), torch.zeros(4, device=device.torch)
    copying = copies.subject(device, source, target, False)
    clock.entered = 0
    assert clock.taken(copying.work) == 1
    assert clock.entered == 0
    beside = copy_engine([device])
    assert beside
    copies.subject(beside, source, target, False).work()
    assert clock.entered == 1, "another stream has to be entered"


def test_data_parallel_devices_compute_at_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: dict[torch.device, int] = defaultdict(int)

    def backward(loss: torch.Tensor, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        spent[loss.device] += 1
        for _ in range(20):
            torch.mm(parameters[2].view(-1, 1), parameters[2].view(1, -1))
        return [torch.zeros_like(p) for p in parameters]

    monkeypatch.setattr(torch.autograd, "grad", backward)
    devices = gpus(4)
    batch = (torch.zeros(8, 1, 28, 28, device=devices[0].torch), torch.zeros(8, dtype=torch.long, device="cuda:0"))
    one = ScratchDataParallel(devices[:1], lenet_parameters(seed=0), lr=0.1)
    four = ScratchDataParallel(devices, lenet_parameters(seed=0), lr=0.1)
    alone = clock.taken(lambda: one.step(batch))
    num_copies = 2 * 3 + 2 * 3 * len(four.replicas[0])  # shards out, gradients in and out, all by device 0
    assert clock.taken(lambda: four.step(batch)) <= alone + num_copies
    assert spent == {torch.device("cuda:0"): 2, **{d.torch: 1 for d in devices[1:]}}


class Stage(nn.Module):
    """As many products as it is told."""

    def __init__(self, products: int) -> None:
        super().__init__()
        self.products = products

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.products):
            torch.mm(x.detach(), x.detach())
        return x * 1.0


def pipeline(strategy: type[Any], *products: int) -> Any:
    """One stage per GPU, without parameters."""
    model = strategy.__new__(strategy)
    model.devices, model.stages = gpus(len(products)), [Stage(count) for count in products]
    model.loss = functional.mse_loss
    return model


def test_a_stage_receives_while_it_computes(clock: Clock) -> None:
    """Four micro-batches are ready after 1, 2, 3 and 4 units, each takes 3 to copy and 3 in the second stage."""
    clock.copy = 3
    model = pipeline(ModelParallel, 1, 3)
    x = torch.zeros(8, 2, device="cuda:0")
    assert clock.taken(lambda: model.forward(x[:2])) == 1 + 3 + 3, "a stage waits for what it computes with"
    assert clock.taken(lambda: [model.forward(micro) for micro in x.split(2)]) == 1 + 4 * 3 + 3


def test_the_memory_of_what_arrives_is_kept_for_who_computes_with_it(clock: Clock) -> None:
    model = pipeline(ModelParallel, 1, 1)
    model.forward(torch.zeros(2, 2, device="cuda:0"))
    second = model.devices[1].torch
    assert (second, clock.default[second]) in clock.kept_for


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("copy", [1, 5])
@pytest.mark.parametrize("num_micro", [2, 4, 8])
def test_a_pipeline_takes_the_schedules_ticks(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, schedule: str, copy: int, num_micro: int
) -> None:
    """Besides, GPipe waits for the first copy there and the last one back, and 1F1B for one per micro-batch."""

    def backward(output: torch.Tensor, gradient: torch.Tensor | None) -> None:
        for _ in range(20):
            torch.mm(torch.zeros(2, 2, device=output.device), torch.zeros(2, 2, device=output.device))
        node = output.grad_fn
        while node and not hasattr(node, "variable"):
            node = node.next_functions[0][0]
        if node:
            node.variable.grad = torch.zeros_like(node.variable)

    monkeypatch.setattr(torch.autograd, "backward", backward)
    monkeypatch.setattr(ModelParallel, "update", lambda self, *after: None)
    clock.copy = copy
    model = pipeline(ScheduledPipeline, 10, 10)
    model.schedule = SCHEDULES[schedule]
    x = torch.zeros(2 * num_micro, 2, device="cuda:0")
    y = torch.zeros(2 * num_micro, 2, device="cuda:1")
    taken = clock.taken(lambda: model.step(x, y, split_size=2))
    exposed = {"gpipe": 2, "1f1b": num_micro}[schedule]
    assert taken == (num_micro + 1) * (10 + 20) + exposed * copy


def test_the_copy_engine_copies_while_the_device_computes(clock: Clock) -> None:
    (device,) = gpus(1)
    engine = copy_engine([device])
    assert engine
    x = torch.zeros(4, 4, device=device.torch)

    def both(copier: Any) -> None:
        for product in [device.submit(torch.mm, x, x) for _ in range(5)]:
            copier.submit(copy_cost._to_host, product, True)

    assert clock.taken(lambda: both(device)) == 10
    assert clock.taken(lambda: both(engine)) == 6
