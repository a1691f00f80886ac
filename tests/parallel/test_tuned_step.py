"""What the proof of a tuned step does not see: switches that stay on, threads, and what stands in for rounding."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from scalecard.distributed import Layout
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.hardware.machine import Machine
from scalecard.hardware.vendors.nvidia import runtime
from scalecard.measuring.counting import counting
from scalecard.parallel import step as steps
from scalecard.parallel import tuned_step
from scalecard.parallel.tuned_step import LARGEST_ERROR, Roundings, TunedStep, cannot
from scalecard.workloads import compiled
from scalecard.workloads.recipe import OptimizerSettings, in_layout
from support.lone_rank import LoneRank
from torch import Tensor, nn
from torch.nn import functional

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def part(size: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 3, 5, 5), torch.randn(size, 2)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(36, 2))


def made(*rungs: str, parts: list[Any] | None = None) -> TunedStep:
    model = in_layout(network(), "channels_last" in rungs)
    return TunedStep(model, model, parts or [part()], rungs, loss=functional.mse_loss, optimizer=OptimizerSettings(0.1))


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[bool, bool, bool]]]:
    """What the forward of a step on a GPU sees: TF32 for products and for convolutions, and cuDNN's trying."""
    monkeypatch.setattr(tuned_step, "runtime_of", lambda device: runtime)
    seen = list[tuple[bool, bool, bool]]()

    def look(module: nn.Module, inputs: Any) -> None:
        seen.append(now())

    hook = nn.modules.module.register_module_forward_pre_hook(look)
    yield seen
    hook.remove()


def now() -> tuple[bool, bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark


@pytest.mark.parametrize(("rungs", "wanted"), [((), (False,) * 3), (("tf32",), (True, True, False))])
def test_switches_are_on_in_the_step_alone(rungs: tuple[str, ...], wanted: tuple[bool, ...], switches: Any) -> None:
    before = now()
    made(*rungs)()
    assert set(switches) == {wanted}
    assert now() == before
    with pytest.raises(RuntimeError, match="size of tensor"):
        made("tf32", parts=[(part(6)[0], torch.zeros(5, 3))])()
    assert now() == before, "also after a step that failed"


def test_cudnn_tries_its_kernels_in_a_thread_of_the_steps_own_backward_included(switches: Any) -> None:
    """In a thread that others share, the step that comes first chooses for all. Operations are counted all the same."""
    threads = set[int]()
    step, plain = made("benchmark"), made()
    for one in (step, plain):
        one.parameters[0].register_hook(lambda gradient: threads.add(threading.get_ident()))
        with counting() as tally:
            one()
        found = tally.sums()["FLOPs"]
        threads.add(-int(found))
    assert switches[0] == (False, False, True)
    assert len({thread for thread in threads if thread > 0} - {threading.get_ident()}) == 1
    assert len({thread for thread in threads if thread < 0}) == 1, "as many operations"


def test_parts_add_up_to_the_mean_over_the_whole_batch() -> None:
    torch.manual_seed(1)
    inputs, targets = part(6)
    halves = [(inputs[:3], targets[:3]), (inputs[3:], targets[3:])]
    whole, parted = made(parts=[(inputs, targets)]), made(parts=halves)
    whole()
    parted()
    for ours, theirs in zip(parted.parameters, whole.parameters, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_ranks_exchange_gradients_with_the_last_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapped(nn.Module):
        """Notes whether each backward would exchange gradients, as DDP does outside no_sync."""

        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module, self.exchanges, self.noted = module, True, list[bool]()

        @contextmanager
        def no_sync(self) -> Iterator[None]:
            self.exchanges = False
            yield
            self.exchanges = True

        def forward(self, inputs: Tensor) -> Tensor:
            self.noted.append(self.exchanges)
            return self.module(inputs)  # type: ignore[no-any-return]

    monkeypatch.setattr(steps, "DistributedDataParallel", Wrapped)
    wrapped = Wrapped(model := nn.Linear(2, 1))
    parts = [(torch.ones(4, 2), torch.zeros(4, 1)) for _ in range(3)]
    TunedStep(model, wrapped, parts, (), loss=functional.mse_loss, optimizer=OptimizerSettings(0.1))()
    assert wrapped.noted == [False, False, True]


def test_channels_last_and_bfloat16_reach_the_convolution() -> None:
    seen = list[Tensor]()
    step = made("channels_last", "bf16")
    first: Any = step.module
    first[0].register_forward_hook(lambda module, inputs, output: seen.extend([*inputs, module.weight, output]))
    step()
    assert all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in seen)
    assert seen[-1].dtype == torch.bfloat16
    assert step.parameters[0].dtype == torch.float32
    assert step.optimizer.defaults["fused"] is None
    assert made("fused").optimizer.defaults["fused"]


def test_a_graph_takes_the_batch_that_it_was_recorded_with_and_others_go_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graph is made up: it computes what lies where the first batch lay."""
    step, replayed = made("graphs"), list[float]()
    step.parts = []
    gradients = [torch.zeros_like(p) for p in step.parameters]
    replay = lambda: replayed.append(float(step.parts[0][0].sum()))  # noqa: E731
    monkeypatch.setattr(TunedStep, "_recorded", lambda self: (replay, gradients))
    batches = [part(4), part(4), part(3)]
    for batch in batches:
        step.on((batch[0].clone(), batch[1]))
    assert replayed == pytest.approx([float(inputs.sum()) for inputs, _ in batches[:2]])
    before = [parameter.clone() for parameter in step.parameters]
    step.on(batches[2])
    assert any(not torch.equal(a, b) for a, b in zip(before, step.parameters, strict=True)), "the odd batch trains too"


@pytest.mark.parametrize("rung", LARGEST_ERROR)
def test_random_errors_are_as_large_as_roundings_and_others_each_time(rung: str) -> None:
    """Of a product of ones by a unit matrix: the factors' errors and, of bfloat16, the result's."""
    ones, unit = torch.ones(64, 64), torch.eye(64)
    with Roundings(rung, 0):
        first, again = (ones @ unit - 1).abs(), (ones @ unit - 1).abs()
    largest = LARGEST_ERROR[rung]
    most = (1 + largest) ** (3 if rung == "bf16" else 2) - 1
    assert largest < float(first.max()) <= most * 1.001
    assert not torch.equal(first, again)
    assert float((ones + ones).max()) == 2, "nothing but products"
    with Roundings(rung, 0):
        assert torch.equal((ones @ unit - 1).abs(), first), "the same with the same seed"


@pytest.mark.parametrize(
    ("rung", "device", "ranks", "said"),
    [
        ("tf32", CPU, 1, "TF32 exists on GPUs only"),
        ("graphs", CPU, 1, "CUDA graphs exist on GPUs only"),
        ("graphs", GPU, 2, "a graph that holds DDP's all-reduces has not been tried on any machine yet"),
        ("graphs", GPU, 1, ""),
        ("channels_last", CPU, 1, ""),
        ("fused", CPU, 2, ""),
    ],
)
def test_what_does_not_exist_here_is_said(rung: str, device: torch.device, ranks: int, said: str) -> None:
    assert cannot(rung, device, network(), ranks) == said
    assert cannot("channels_last", CPU, nn.Linear(2, 2), 1) == "the workload has no convolutions of images"


@pytest.mark.parametrize(
    ("device", "here", "given", "compiles"),
    [
        (GPU, ("gcc",), {}, True),
        (GPU, ("clang",), {}, True),
        (GPU, ("g++", "c++"), {}, False),
        (GPU, ("own",), {"CC": "own -m64"}, True),
        (GPU, ("gcc",), {"CC": "absent"}, False),
        (CPU, ("g++",), {}, True),
        (CPU, ("gcc", "clang++", "c++"), {}, False),
        (CPU, ("own",), {"CXX": "own"}, True),
        (CPU, ("own",), {"CC": "own"}, False),
    ],
)
def test_gpus_need_a_c_compiler_and_cpus_gxx(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, here: tuple[str, ...], given: dict[str, str], compiles: bool
) -> None:
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: f"/bin/{name}" if name in here else None)
    found = cannot("compile", device, network(), 1)
    assert found == "" if compiles else "torch.compile needs a compiler, and " in found


def test_without_pythons_headers_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiled.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(compiled.sysconfig, "get_path", lambda name: str(tmp_path))
    for device in (CPU, GPU):
        assert "Python.h is not here" in cannot("compile", device, network(), 1)
    (tmp_path / "Python.h").touch()
    assert cannot("compile", GPU, network(), 1) == ""


def test_code_is_compiled_into_an_empty_folder_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: Any = LoneRank()
    monkeypatch.setenv("TRITON_CACHE_DIR", "/of/the/user")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with compiled.empty_cache_of_code(alone):
        folders = {compiled.os.environ[name] for name in compiled.CACHES}
        assert len(folders) == 2
    assert compiled.os.environ["TRITON_CACHE_DIR"] == "/of/the/user"
    assert "TORCHINDUCTOR_CACHE_DIR" not in compiled.os.environ


def test_the_ranks_of_each_node_share_a_folder_there(monkeypatch: pytest.MonkeyPatch) -> None:
    last: Any = LoneRank(rank=3, world_size=4, layout=Layout(4, 2))
    monkeypatch.setattr(last, "all_gather", lambda mine: ["/of/rank-0", "", "/of/rank-2", mine])
    with compiled.empty_cache_of_code(last):
        assert compiled.os.environ["TRITON_CACHE_DIR"] == "/of/rank-2/triton_cache_dir"


Compiling = tuple[str, set[int], list[tuple[int, int]]]


def two_graphs(ctx: RankContext) -> Compiling:
    """The folder, how many workers, and of each of two graphs how many ranks began before this one, and then ended."""
    seen, workers = list[tuple[int, int]](), set[int]()

    def compile_(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        """Those that are not the first wait until all of them are here."""
        folder = Path(compiled.os.environ[compiled.CACHES[0]]).parent
        graph = folder / f"test-{len(seen)}"
        graph.mkdir(exist_ok=True)
        before = len([*graph.glob("begun-*")])
        ended = len([*graph.glob("ended-*")])
        (graph / f"begun-{ctx.rank}").touch()
        time.sleep(0.2)
        until = time.monotonic() + 20
        while before and len([*graph.glob("begun-*")]) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert time.monotonic() < until, "the others compile beside each other"
        (graph / f"ended-{ctx.rank}").touch()
        seen.append((before, ended))
        workers.add(torch._inductor.config.compile_threads or 0)
        return module.forward

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._dynamo, "lookup_backend", lambda name: compile_)
        patch.setattr(compiled.host, "usable_cores", lambda: 20)
        with compiled.empty_cache_of_code(ctx):
            compiled.Compiled(lambda x: 2 * x)(torch.ones(()))
            with ThreadPoolExecutor(1) as another:  # as of steps whose kernels cuDNN tries
                another.submit(compiled.Compiled(lambda x: 3 * x), torch.ones(())).result()
            return compiled.os.environ[compiled.CACHES[0]], workers, seen


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_share_a_folder_and_the_cores_and_one_of_them_compiles_first(machine: Machine) -> None:
    """The others find its kernels, and compile the rest beside each other."""
    found: list[Compiling] = launch(two_graphs, layout=Layout(3), machine=machine)
    folders, workers, seen = zip(*found, strict=True)
    assert len({*folders}) == 1
    assert not Path(folders[0]).parent.exists()
    assert workers == ({6}, {6}, {6})
    for graph in zip(*seen, strict=True):
        first, *others = sorted(graph)
        assert first == (0, 0)
        assert all(ended >= 1 for _, ended in others), "the first is alone"


def test_code_is_compiled_as_often_as_there_are_combinations_in_whatever_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dynamo's settings are held per thread; by default it gives up at the ninth version of a piece of code."""
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: lambda module, inputs: module.forward)
    torch._dynamo.reset()
    steps = [made("benchmark", "compile") for _ in range(10)]
    for step in steps:
        step()
    assert [step.compiled.plain_calls for step in steps if step.compiled] == [0] * 10


def test_calls_in_which_no_compiled_code_ran_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With dynamo alone, which needs no compiler; a function that it cannot take runs as it is."""
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: lambda module, inputs: module.forward)
    doubled = compiled.Compiled(lambda x: 2 * x)
    for _ in range(3):
        assert float(doubled(torch.ones(()))) == 2
    assert doubled.plain_calls == 0
    hidden = torch._dynamo.disable(lambda x: 2 * x)
    given_up = compiled.Compiled(lambda x: hidden(x))
    for _ in range(2):
        given_up(torch.ones(()))
    assert given_up.plain_calls == 2


def test_compiled_code_also_runs_in_the_step_that_is_counted_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a mode of PyTorch's dispatcher dynamo runs the plain code and, in PyTorch 2.11, marks it for ever."""
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: lambda module, inputs: module.forward)
    step = made("compile")
    with counting():
        step()
    step()
    assert step.compiled
    assert step.compiled.plain_calls == 0


def test_a_model_whose_step_was_compiled_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder compiles many, one after another. With dynamo alone; inductor keeps no parameters either."""
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: lambda module, inputs: module.forward)
    step = made("compile")
    step()
    assert step.compiled
    assert not step.compiled.plain_calls
    kept = [weakref.ref(step), weakref.ref(step.module), weakref.ref(step.parameters[0])]
    del step
    gc.collect()
    assert [ref() for ref in kept] == [None] * 3


def test_own_threads_are_as_many_as_steps() -> None:
    assert made("benchmark")._thread is not made("benchmark")._thread
    assert made()._thread is None
