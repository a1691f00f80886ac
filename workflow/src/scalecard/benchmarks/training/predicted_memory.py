"""What a device's memory should be used for with each strategy: closed forms, and the activations of a plain forward.

    parameters, gradients   4 bytes per value; what is trained has a gradient
    optimizer               so many bytes per trained value as the recipe's optimizer keeps
    activations             what a forward leaves alive, with its loss, for its backward

    DDP                     all of them, activations of the device's share of the batch
    ZeRO-1                  1/n of the states
    FSDP                    1/n of each parameter's rows, gradients and states; nothing of these if they are offloaded
    tensor parallelism      1/n of the layers of the plan
    stages                  each its own; activations of as many micro-batches as its schedule lets wait at a time

They follow from the workload, the catalogue and the number of devices; nothing is asked of what is measured. The
forward is PyTorch's on tensors without data (FakeTensorMode) of the device's type, whose kernels save what the real
ones do. Every storage that it makes is followed, and those that are alive at its end are added up. A stage after the
first also keeps what it is handed. Whoever does without a schedule in one process refers to the outputs as long.

Source: Rajbhandari et al., ZeRO (2020), section 3, for what is kept per parameter.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scalecard.benchmarks.training.cut_model import balanced_cuts, cut
from scalecard.benchmarks.training.strategy import Setting
from scalecard.hardware.failures import in_one_line
from scalecard.measuring.memory import in_blocks
from scalecard.parallel import sharded
from scalecard.records.axes import MemoryKind
from scalecard.records.strategies import Division, Payload, Schedule, Strategy, Untimed
from scalecard.workloads.meta import META
from scalecard.workloads.modules import BATCH_NORM
from scalecard.workloads.nested import mapped
from scalecard.workloads.reference import trainable
from scalecard.workloads.stage_cuts import Cuts
from scalecard.workloads.workload import HOST, Workload

THREADS = "no formula: the first device also has the outputs of all, and their loss"
LAYERS = "no formula for what devices keep that divide layers"
NEEDS_VALUES = "on tensors without data its forward raises "
INTERLEAVED = "no formula for how many micro-batches wait in an interleaved schedule"


@dataclass(frozen=True)
class Prediction:
    """Bytes of one device; without activations `why_not` says why nothing predicts them."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float | None = None
    why_not: str = ""

    @property
    def by_kind(self) -> dict[MemoryKind, float]:
        """Those that are known."""
        known: dict[MemoryKind, float] = {"parameters": self.parameters, "gradients": self.gradients}
        known["optimizer"] = self.optimizer
        return known if self.activations is None else {**known, "activations": self.activations}


def predicted(
    strategy: Strategy, at: Setting, device: torch.device, *, place: int = 0, nodes: int = 1, replicas: int = 1
) -> Prediction:
    """Of the device at a `place` among those of a setting; with `replicas` of the model, which share the batch.

    Of blocks as they are written, compiled or not.
    """
    at = replace(at, workload=at.workload.uncompiled)
    if Division.STAGES in strategy.divides:
        return _of_stages(strategy, at, device, place, replicas)
    workload, model = at.workload, at.workload.with_precision("float32").network(META)
    here = _here(strategy, workload, model, place, devices=at.devices, nodes=nodes, replicas=replicas)
    trained = [tensor for tensor, whole in zip(here, model.parameters(), strict=False) if whole.requires_grad]
    why_not = LAYERS if Division.TENSORS in strategy.divides else ""
    why_not = THREADS if Untimed.THREADS in strategy.untimed else why_not
    share = replace(workload, batch_size=workload.micro_batch_size(workload.batch_size // at.devices))
    sharding, alone = Division.SHARDS in strategy.divides, not strategy.divides
    activations = partial(_of_whole, share, device, whole_in_bf16=sharding, outputs_too=alone)
    found = _prediction(workload, [*here, *model.buffers()], trained, activations, why_not)
    divided = any(one.payload is Payload.UPDATED for one in strategy.collectives)
    return replace(found, optimizer=found.optimizer / at.devices) if divided else found


def _prediction(
    workload: Workload, here: list[Tensor], trained: Sequence[Tensor], activations: Callable[[], float], why_not: str
) -> Prediction:
    """By what a device has of parameters and buffers, and of what is trained; activations unless `why_not` says why."""
    states = float(workload.optimizer_settings.state_bytes(trained)) if trained else 0.0
    known = Prediction(_bytes(here), _bytes(trained), states, why_not=why_not)
    if why_not:
        return known
    try:
        return replace(known, activations=activations())
    except Exception as error:  # of a file of the user's, which may need values
        return replace(known, why_not=NEEDS_VALUES + in_one_line(error))


def _bytes(tensors: Iterable[Tensor]) -> float:
    return float(sum(tensor.nbytes for tensor in tensors))


def _here(
    strategy: Strategy, workload: Workload, model: nn.Module, place: int, *, devices: int, nodes: int, replicas: int
) -> list[Tensor]:
    """What one device has of each of the model's parameters, without data; nothing if they are offloaded.

    Devices of a node, or of a replica, follow one another.
    """
    if Untimed.HOST in strategy.untimed:
        return []
    found = [parameter.detach() for parameter in model.parameters()]
    if Division.TENSORS in strategy.divides:
        ranks = devices // replicas
        divided = _divided(model, workload.module.tensor_plan(model), place % ranks, ranks)
        found = [divided.get(id(parameter), parameter.detach()) for parameter in model.parameters()]
        return sharded.local_shards(found, place // ranks, replicas)
    if Division.SHARDS in strategy.divides:
        ranks = devices // (nodes if Division.REPLICAS in strategy.divides else 1)
        return sharded.local_shards(found, place % ranks, ranks)
    return found


def _divided(model: nn.Module, plan: dict[str, str], rank: int, ranks: int) -> dict[int, Tensor]:
    """By its id, the share of every parameter that a plan divides: of outputs ("column") or inputs ("row")."""
    found = {}
    for name, style in plan.items():
        layer = model.get_submodule(name)
        for key, parameter in layer.named_parameters(recurse=False):
            if key == "weight":  # an embedding's has its outputs last
                outputs = 1 if isinstance(layer, nn.Embedding) else 0
                along = outputs if style == "column" else 1 - outputs
                found[id(parameter)] = parameter.detach().tensor_split(ranks, along)[rank]
            elif style == "column":
                found[id(parameter)] = parameter.detach().tensor_split(ranks)[rank]
    return found


def _of_stages(strategy: Strategy, at: Setting, device: torch.device, place: int, replicas: int) -> Prediction:
    workload, depth, schedule = at.workload, at.devices // replicas, strategy.schedule
    cuts = at.cuts or balanced_cuts(workload, depth * (schedule.stages_each if schedule else 1))
    _, stages = cut(workload.with_precision("float32"), cuts)
    mine = nn.ModuleList(stages[number] for number in range(place % depth, len(stages), depth))
    why_not = INTERLEAVED if schedule is Schedule.INTERLEAVED else ""
    micro = replace(workload, batch_size=at.split_size // replicas)
    waiting = {None: 1, Schedule.GPIPE: at.num_micro}.get(schedule, min(depth - place % depth, at.num_micro))
    kept = partial(_of_cut, micro, cuts, device, outputs_too=schedule is None)
    here = [*mine.parameters(), *mine.buffers()]
    return _prediction(workload, here, trainable(mine), lambda: waiting * kept()[place % depth], why_not)


@functools.cache
def _of_whole(workload: Workload, device: torch.device, *, whole_in_bf16: bool, outputs_too: bool) -> int:
    """The activations of the batch; with `whole_in_bf16` not products alone are in bf16, but as FSDP2 does it."""
    if not (whole_in_bf16 and workload.in_bf16):
        return _kept([workload.network(META)], workload, device, outputs_too=outputs_too)[0]
    model = workload.with_precision("float32").network(META).bfloat16()
    for module in model.modules():
        if isinstance(module, BATCH_NORM):
            module.float()
    return _kept([model], workload, device, floats=torch.bfloat16)[0]


@functools.cache
def _of_cut(workload: Workload, cuts: Cuts, device: torch.device, *, outputs_too: bool) -> list[int]:
    """The activations of every stage for one micro-batch, the batch."""
    return _kept(cut(workload, cuts)[1], workload, device, outputs_too=outputs_too)


def _kept(
    stages: Sequence[nn.Module],
    workload: Workload,
    device: torch.device,
    *,
    outputs_too: bool = False,
    floats: torch.dtype | None = None,
) -> list[int]:
    """Bytes that each of these stages leaves alive for its backward; the loss is the last one's work.

    With `outputs_too` the model's outputs as well. Inputs may be cast to other `floats` first.
    """
    inputs, targets = workload.batch(workload.batch_size, HOST)
    found, last = list[int](), len(stages) - 1
    with FakeTensorMode(allow_non_fake_inputs=True):
        value, goal = (mapped(lambda each: torch.empty_like(each, device=device), tree) for tree in (inputs, targets))
        for number, stage in enumerate(stages):
            there = stage.to_empty(device=device)
            with _Storages() as made:
                if number:
                    value = value.clone().requires_grad_()
                elif floats:
                    value = mapped(lambda each: each.to(floats) if each.is_floating_point() else each, value)
                outputs = there(value)
                result = workload.loss(outputs, goal) if number == last else outputs
                if not outputs_too:
                    del outputs
                found.append(made.alive)
            value = result.detach()
    return found


class _Storages(TorchDispatchMode):
    """Follows the memory that operations give out meanwhile, below autograd."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        given = {each.untyped_storage()._cdata for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        for tensor in (each for each in tree_leaves(out) if isinstance(each, Tensor)):
            storage = tensor.untyped_storage()
            if storage._cdata not in given:  # no view, and not changed in place
                self._made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return out

    @property
    def alive(self) -> int:
        """Bytes of what is still referred to, as the allocator would give them out."""
        return sum(in_blocks(size) for storage, size in self._made.values() if not storage.expired())
