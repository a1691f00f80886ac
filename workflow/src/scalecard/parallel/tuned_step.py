"""One step on one device or rank with any of the switches that may make it faster: the rungs of a ladder.

    tf32            GPUs round the factors of float32 products and convolutions to TF32
    bf16            autocast computes products and convolutions in bfloat16; parameters stay float32
    channels_last   images and the weights of convolutions lie channels last (NHWC) in memory
    fused           one kernel updates all parameters
    benchmark       cuDNN tries its kernels for every shape, and keeps the fastest
    compile         torch.compile makes kernels of the forward, the loss and their backward
    graphs          CUDA replays the forward and backward as one graph; the update stays outside of it

In float64 TF32 and bfloat16 change nothing, so that every combination can be compared with a plain loop there.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from scalecard.hardware import devices
from scalecard.hardware.vendors.runtimes import runtime_of
from scalecard.parallel.step import accumulate_gradients, update
from scalecard.parallel.trainer import Trainer
from scalecard.workloads.compiled import Compiled, no_compiler
from scalecard.workloads.nested import Tree, leaves
from scalecard.workloads.recipe import OptimizerSettings, in_layout, lacks_images
from scalecard.workloads.reference import trainable

ROUNDING = ("tf32", "bf16")  # these change what is computed, the others only how
Part = tuple[Tree, Tree]


def cannot(rung: str, device: torch.device, model: nn.Module, ranks: int) -> str:
    """Why a rung does not exist for this model on this device, or ''."""
    if reason := runtime_of(device).lacks(rung, device):
        return reason
    if rung in ("channels_last", "benchmark") and (reason := lacks_images(model)):
        return reason
    if rung == "graphs" and ranks > 1:
        return "a graph that holds DDP's all-reduces has not been tried on any machine yet"
    return no_compiler(device) if rung == "compile" else ""


class TunedStep:
    """Forward and backward over every part of a batch, whose gradients add up to their mean; then one update.

    `model` has the parameters; `module` is what is called, the model itself or wrapped by DDP. Gradients are clipped as
    the optimiser's settings say.
    """

    def __init__(
        self,
        model: nn.Module,
        module: nn.Module,
        parts: Sequence[Part],
        rungs: Iterable[str],
        *,
        loss: Callable[[Any, Any], Tensor],
        optimizer: OptimizerSettings,
    ) -> None:
        self.module, self.rungs = module, frozenset(rungs)
        self.parts = [in_layout(part, "channels_last" in self.rungs) for part in parts]
        self.parameters = trainable(model)
        self.device = self.parameters[0].device
        self._runtime = runtime_of(self.device)
        self.optimizer = optimizer.build(self.parameters, fused="fused" in self.rungs)
        self.max_norm = optimizer.clip

        def forward(inputs: Tree, targets: Tree) -> Tensor:
            return loss(module(inputs), targets)

        self.compiled = Compiled(forward) if "compile" in self.rungs else None
        self._forward = self.compiled or forward
        self._graphs: dict[bool, tuple[Callable[[], None], list[Tensor | None]]] = {}
        self._thread = own_thread(self.device) if "benchmark" in self.rungs else None

    def __call__(self) -> None:
        self._call(self._step)

    def _call(self, step: Callable[[], None]) -> None:
        if self._thread:
            self._thread.submit(_observed, step).result()
        else:
            step()

    def on(self, part: Part) -> None:
        """A step on another batch: a graph reads where its first one lay, and takes no other size."""
        part = in_layout(part, "channels_last" in self.rungs)
        recorded = "graphs" in self.rungs and self.parts
        if recorded and [new.shape for new in leaves(part)] == [kept.shape for kept in leaves(self.parts[0])]:
            for kept, new in zip(leaves(self.parts[0]), leaves(part), strict=True):
                kept.copy_(new)
            self()
        elif recorded:
            self._call(partial(self._step, part))
        else:
            self.parts = [part]
            self()

    def _step(self, odd: Part | None = None) -> None:
        """With an odd batch, which no graph takes, as it would be without graphs."""
        with self._runtime.switched(tf32="tf32" in self.rungs, benchmark="benchmark" in self.rungs):
            if "graphs" in self.rungs and odd is None:
                self._replay()
            else:
                self._backward(self.parts if odd is None else [odd])
            update(self.optimizer, self.max_norm)

    def _backward(self, parts: Sequence[Part]) -> None:
        accumulate_gradients(self.module, parts, self._loss)

    def _loss(self, inputs: Tree, targets: Tree) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled="bf16" in self.rungs):
            value: Tensor = self._forward(inputs, targets)
        return value

    def _replay(self) -> None:
        """A graph always writes the same gradients; whether dropout draws is part of it."""
        mode = self.module.training
        if mode not in self._graphs:
            self._graphs[mode] = self._recorded()
        replay, gradients = self._graphs[mode]
        replay()
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient

    def _recorded(self) -> tuple[Callable[[], None], list[Tensor | None]]:
        """Recorded after a few passes, which change statistics of batch normalisation, but no parameter."""

        def warm_up() -> None:
            self._backward(self.parts)
            self.optimizer.zero_grad(set_to_none=True)  # so that the graph's own backward allocates them

        assert self._runtime.recorded, "or the rung is refused"
        replay = self._runtime.recorded(partial(self._backward, self.parts), warm_up, self.device)
        return replay, [parameter.grad for parameter in self.parameters]


@dataclass
class TunedTrainer(Trainer):
    """Epochs whose steps have these rungs. Test images are scored in float32, as ever."""

    rungs: Sequence[str] = ()
    tuned: TunedStep = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        in_layout(self.model, "channels_last" in self.rungs)
        self.tuned = TunedStep(
            self.model, self.model, [], self.rungs, loss=functional.cross_entropy, optimizer=OptimizerSettings(self.lr)
        )
        self.optimizer = self.tuned.optimizer

    def step(self, images: Tensor, labels: Tensor) -> None:
        self.tuned.on((images, labels))


def own_thread(device: torch.device) -> ThreadPoolExecutor:
    """A thread for all work of one step, its backward included.

    cuDNN keeps what it chose for a shape per thread, tried or not: in one thread the step that comes first would choose
    for all. PyTorch's own threads for backward passes are shared, too. Source: aten/src/ATen/native/cudnn/Conv_v8.cpp.
    """

    def begin() -> None:
        torch.autograd.set_multithreading_enabled(False)
        if device.type != "cpu":
            torch.accelerator.set_device_index(device)

    return ThreadPoolExecutor(1, initializer=begin)


def _observed(work: Callable[[], None]) -> None:
    """What counts operations sees those of another thread only if it is told."""
    with ExitStack() as entered:
        for observer in devices.observers:
            entered.enter_context(observer.around())
        work()


# The largest relative error of one rounding: bfloat16 is rounded to nearest, TF32 may be cut off.
LARGEST_ERROR = {"bf16": 2.0**-8, "tf32": 2.0**-10}
RESULTS_TOO = ("bf16",)  # TF32 rounds the factors of a product alone, and adds up in float32


class Roundings(TorchDispatchMode):
    """Changes the factors of every product and convolution, forward and backward, as a format's roundings would.

    Each value by a random part of the largest error. In bfloat16 the results are rounded as well.
    """

    def __init__(self, rung: str, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._largest, self._results, self._seed = LARGEST_ERROR[rung], rung in RESULTS_TOO, seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function.overloadpacket not in flop_registry:
            return function(*args, **(kwargs or {}))
        out = function(*tree_map(self._rounded, args), **tree_map(self._rounded, kwargs or {}))
        return tree_map(self._rounded, out) if self._results else out

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype != torch.float32:
            return value
        if value.device not in self._generators:
            self._generators[value.device] = torch.Generator(value.device).manual_seed(self._seed)
        generator = self._generators[value.device]
        return value + value * torch.empty_like(value).uniform_(-self._largest, self._largest, generator=generator)
