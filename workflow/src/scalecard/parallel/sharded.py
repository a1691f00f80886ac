"""What PyTorch itself divides over ranks: parameters (FSDP2), layers (tensor parallelism) and states (ZeRO-1).

    fully_shard        each rank keeps 1/n of every parameter, gradient and optimiser state; whole parameters are
                       gathered block by block, and gradients reduced and scattered: in bf16 parameters are gathered
                       in bfloat16, and gradients reduced in float32. With an offload policy what each rank keeps is in
                       the host's memory, comes to the device to be gathered, and is updated on the host
    ZeroRedundancyOptimizer
                       each rank keeps the optimiser's states of some parameters, and updates and broadcasts those
    parallelize_module rank r keeps a share of a layer's outputs ("column") or inputs ("row"), and of no other layer

Sources: Zhao et al., PyTorch FSDP (2023); Shoeybi et al., Megatron-LM (2019); Rajbhandari et al., ZeRO (2020).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from scalecard.workloads.modules import BATCH_NORM
from scalecard.workloads.recipe import OptimizerSettings, change_forward, in_layout

STYLES: Mapping[str, type[Any]] = {"column": ColwiseParallel, "row": RowwiseParallel}


def sharded(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    mesh: DeviceMesh,
    *,
    parameters: bool,
    bf16: bool = False,
    on_host: bool = False,
) -> nn.Module:
    """The model, sharded in place block by block; with two dimensions over the second, and replicated over the first.

    A model on the host is moved as it is sharded, so that a device holds no more than a block of it at a time.
    With `parameters`, whole ones are freed after a block's forward and gathered again for its backward. With `bf16`
    everything but the sums of gradients, the update and batch normalisation, which is gathered by itself, is in
    bfloat16, and not products alone, as with autocast. With `on_host` shards stay in the host's memory.
    """
    options: dict[str, Any] = {"offload_policy": CPUOffloadPolicy()} if on_host else {}
    apart = _normalisations(model) if bf16 else []
    for module in dict.fromkeys([*apart, *blocks, model]):
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 and module not in apart else None
        fully_shard(
            module, mesh=mesh, reshard_after_forward=parameters, mp_policy=policy or MixedPrecisionPolicy(), **options
        )
    return model


def lay_channels_last(model: nn.Module) -> None:
    """Let each convolution of images lay its weight channels last in its forward, as it would that of other images."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            change_forward(module, _with_weight_laid(type(module)._conv_forward), method="_conv_forward")


def _with_weight_laid(convolve: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(convolution: nn.Conv2d, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return convolve(convolution, images, in_layout(weight, True), bias)

    return run


def materialise(
    model: nn.Module,
    initialise: Callable[[Callable[[str, Tensor], None]], None],
    device: torch.device,
    *,
    rank: int,
    ranks: int,
    on_host: bool = False,
) -> None:
    """Give a model that was sharded without data its rank's rows of every parameter, and its buffers.

    `initialise` gives whole ones to a function, by their names, and frees each once its rows are copied.
    """
    model.to_empty(device=torch.device("cpu") if on_host else device)
    parameters = dict(model.named_parameters())

    def keep(name: str, whole: Tensor) -> None:
        if isinstance(parameter := parameters.get(name), DTensor):
            shard, start = parameter.to_local(), rank * -(-len(whole) // ranks)
            shard.copy_(whole[start : start + len(shard)])
        else:
            owner, _, own = name.rpartition(".")
            module = model.get_submodule(owner)
            setattr(module, own, whole.to(device, getattr(module, own).dtype))

    with torch.no_grad():
        initialise(keep)


def is_tied(block: nn.Module, model: nn.Module) -> bool:
    """Whether the rest of the model has one of its parameters, too: FSDP2 then leaves the block to the model."""
    inside, own = set(block.modules()), {id(parameter) for parameter in block.parameters()}
    outside = (module for module in model.modules() if module not in inside)
    return any(id(parameter) in own for module in outside for parameter in module.parameters(recurse=False))


def _normalisations(model: nn.Module) -> list[nn.Module]:
    """What stays in float32: batch normalisation, whose statistics are, too."""
    return [module for module in model.modules() if isinstance(module, BATCH_NORM)]


def bf16_parameters(model: nn.Module) -> list[Tensor]:
    """The parameters that are gathered in bfloat16."""
    kept = {id(parameter) for module in _normalisations(model) for parameter in module.parameters()}
    return [parameter for parameter in model.parameters() if id(parameter) not in kept]


def gathered_bytes(parameters: Iterable[Tensor], ranks: int) -> int:
    """Bytes of whole parameters as FSDP2 sends them: each rank as many rows as the first, which has the most."""
    return ranks * sum(shard.nbytes for shard in local_shards(parameters, 0, ranks))


def local_shards(parameters: Iterable[Tensor], rank: int, ranks: int) -> list[Tensor]:
    """What FSDP2 leaves of whole parameters on a rank, without data: the rows that torch.chunk would give it."""
    shards = []
    for parameter in parameters:
        rows, *rest = tuple(parameter.shape) or (1,)
        each = -(-rows // ranks)
        own = max(0, min(each, rows - rank * each))
        shards.append(torch.empty(own, *rest, dtype=parameter.dtype, device="meta"))
    return shards


def zero_1(
    settings: OptimizerSettings, parameters: Iterable[Tensor], rank: int, ranks: int
) -> tuple[ZeroRedundancyOptimizer, list[Tensor]]:
    """ZeRO-1: an optimiser that keeps states of some parameters and updates those, then gets the others' values.

    And which these are on a rank: of each group the largest come first, each to the rank with the fewest values so far.
    """
    whole = settings.build(parameters)

    def of_mine(groups: Iterable[Mapping[str, Any]]) -> torch.optim.Optimizer:
        try:
            return type(whole)(groups, lr=settings.lr)  # type: ignore[arg-type, call-arg]
        except TypeError as error:
            kind = type(whole).__name__
            raise ValueError(f"{kind}(groups, lr) cannot be made of some of the parameters: {error}") from error

    sizes, mine = [0] * ranks, list[Tensor]()
    for group in whole.param_groups:
        for parameter in sorted(group["params"], key=Tensor.numel, reverse=True):
            owner = sizes.index(min(sizes))
            sizes[owner] += parameter.numel()
            mine += [parameter] if owner == rank else []
    return ZeroRedundancyOptimizer(whole.param_groups, of_mine), mine  # type: ignore[arg-type]


def divided(model: nn.Module, plan: Mapping[str, str], mesh: DeviceMesh) -> nn.Module:
    """The model with the layers of the plan divided in place. ValueError names what the plan may not say."""
    for name, style in plan.items():
        if style not in STYLES:
            raise ValueError(f"tensor_plan(model)[{name!r}] = {style!r}: must be one of {', '.join(STYLES)}")
        try:
            model.get_submodule(name)
        except AttributeError:
            raise ValueError(f"tensor_plan(model)[{name!r}]: the model has no such layer") from None
    return parallelize_module(model, mesh, {name: STYLES[style]() for name, style in plan.items()})


def whole(tensors: Iterable[Tensor]) -> list[Tensor]:
    """What is divided, put together on every rank, in the host's memory; all of them take part."""
    return [_whole(tensor) if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def _whole(tensor: DTensor) -> Tensor:
    """By way of the device, if its shards are in the host's memory: the device's group exchanges no others."""
    mesh, place = tensor.device_mesh, tensor.placements
    if tensor.device.type == mesh.device_type:
        return tensor.full_tensor().cpu()
    here = tensor.to_local().to(mesh.device_type)
    return DTensor.from_local(here, mesh, place, shape=tensor.shape, stride=tensor.stride()).full_tensor().cpu()
