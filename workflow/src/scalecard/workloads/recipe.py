"""How a workload is trained: its optimiser, the precision of its products, and what it keeps for its backward.

A step's gradients g change the parameters p:

    plain_sgd  p -= lr g
    sgd        m = 0.9 m + g;  p -= lr m
    adamw      m = 0.9 m + 0.1 g;  v = 0.95 v + 0.05 g^2;  p -= lr decay p;  p -= lr m' / (sqrt(v') + epsilon)

m' and v' are m / (1 - 0.9^t) and v / (1 - 0.95^t) in step t. With the usual epsilon of 1e-8 a first step has the
gradients' signs alone, and no proof could tell half of a gradient from all of it. So epsilon is 1, and the decay 1e-6:
beside such steps the usual 0.1 would hide the gradients. The values of constants change neither time nor memory, so an
optimiser of the workload's own file gets these, too.

In bf16 autocast rounds the factors and results of products and convolutions to bfloat16; parameters and gradients stay
float32. FSDP2 does so by a policy of its own (parallel/sharded.py). With checkpointing a block keeps nothing but its
inputs for the backward, which runs its forward again; if it is selective, a block also keeps the results of attention
and of its first, third, fifth ... product or convolution, which are not computed again. With `channels_last` images and
the weights of convolutions lie channels last (NHWC) in memory. With `compile` the forward of each block is
compiled, with its backward (compiled.py).

Sources: Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019; Kalamkar et al., A Study of BFLOAT16
for Deep Learning Training, 2019; Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016;
Liang et al., TorchTitan, 2024, for what the selective form keeps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import flop_registry

from scalecard.hardware import devices
from scalecard.hardware.vendors.runtimes import runtime_of
from scalecard.workloads.nested import leaves, mapped

T = TypeVar("T")
Precision = Literal["float32", "bf16", "auto"]
Checkpointing = Literal["none", "blocks", "selective"]
OptimizerName = Literal["plain_sgd", "sgd", "adamw", "own"]
MOMENTUM = 0.9
BETAS = (0.9, 0.95)
EPSILON, WEIGHT_DECAY = 1.0, 1e-6
OUR_CONSTANTS = {"eps": EPSILON, "weight_decay": WEIGHT_DECAY}  # by PyTorch's names
FUSING = ("cuda",)  # types of devices
IMAGES = 4  # dimensions of them, and of the weights of their convolutions
PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.convolution)
ATTENTION = [each for each in flop_registry if "attention" in str(each) and "backward" not in str(each)]


def lacks_bf16(device: torch.device) -> str:
    """Why a GPU has none, or ''; a CPU without instructions for it computes in it all the same."""
    return "" if device.type == "cpu" else runtime_of(device).lacks("bf16", device)


def precision_on(device: torch.device, wanted: Precision) -> Precision:
    """The same; what is left open is bfloat16 on GPUs that have it."""
    if wanted != "auto":
        return wanted
    return "float32" if device.type == "cpu" or lacks_bf16(device) else "bf16"


@dataclass(frozen=True)
class Recipe:
    """The textbooks' own by default. The precision "auto" is bf16 on GPUs that have it.

    A device forwards its samples in so many micro-batches as `accumulate` says, and clips gradients by a global norm of
    `clip`; 0: it does not.
    """

    optimizer: OptimizerName = "plain_sgd"
    precision: Precision = "float32"
    checkpointing: Checkpointing = "none"
    accumulate: int = 1
    clip: float = 0.0
    channels_last: bool = False
    compile: bool = False

    def others(self, precisions: Iterable[Precision], checkpointing: Iterable[Checkpointing]) -> list["Recipe"]:
        """Every other one of these that is like it in all else; its own precision is as on GPUs, if it is left open."""
        own = "bf16" if self.precision == "auto" else self.precision, self.checkpointing
        every = product(precisions, checkpointing)
        return [replace(self, precision=a, checkpointing=b) for a, b in every if (a, b) != own]


TEXTBOOKS = Recipe()


@dataclass(frozen=True)
class OptimizerSettings:
    """An optimiser and its learning rate; `own` is the function of the workload's file, if it has its own.

    With `clip`, the gradients are clipped by that global norm before.
    """

    lr: float
    name: OptimizerName = "plain_sgd"
    own: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None
    clip: float = 0.0
    leaves_out: bool = False  # a step may have no gradient for some parameters, and not change them

    @property
    def writes_per_step(self) -> int:
        """How often a step changes a parameter in place, if not by one fused kernel: weight decay does by itself."""
        return 2 if self.name == "adamw" else 1

    @property
    def num_moments(self) -> int:
        """How many tensors as large as a parameter are kept for it from step to step."""
        return {"sgd": 1, "adamw": 2}.get(self.name, 0)

    def state_bytes(self, parameters: Iterable[Tensor]) -> int:
        """Bytes of what is kept for these parameters; of an optimiser of its own, after a step with other gradients."""
        every = list(parameters)
        if not self.own:
            return self.num_moments * sum(parameter.nbytes for parameter in every)
        try:
            return self._state_bytes_of_own(every, "meta")
        except Exception:  # of a file of the user's, or of PyTorch: kernels that need data
            return self._state_bytes_of_own(every, "cpu")

    def _state_bytes_of_own(self, parameters: Sequence[Tensor], device: str) -> int:
        """Of a step on parameters of zeros, or on the meta device without data: states as large as their parameter."""
        alike = [torch.zeros(p.shape, dtype=p.dtype, device=device) for p in parameters]
        made = self.build(alike)
        for group in made.param_groups:
            group |= {"capturable": False} if group.get("capturable") else {}  # for GPUs alone
        for parameter in alike:
            parameter.grad = torch.empty_like(parameter)
        made.step()
        states = ((parameter, value) for parameter in alike for value in made.state[parameter].values())
        return sum(v.nbytes for parameter, v in states if isinstance(v, Tensor) and v.shape == parameter.shape)

    def updates(self, parameters: Iterable[Tensor]) -> dict[str, float]:
        """How a step's changes of these parameters are counted, and how many there are; not known of a file's own."""
        if self.own or self.leaves_out:
            return {}
        every = list(parameters)
        return {"fused updates": len(_by_kind(every))} if self._fuses(every) else {"updates": self.writes_per_step}

    def _fuses(self, parameters: Sequence[Tensor]) -> bool:
        """Whether PyTorch's fused implementation is taken: on GPUs, but for the textbooks' optimiser.

        Of SGD there is none for tensors that are divided over ranks (DTensors).
        """
        divided = any(hasattr(parameter, "to_local") for parameter in parameters)
        fusable = self.name == "adamw" or (self.name == "sgd" and not divided)
        return fusable and all(parameter.device.type in FUSING for parameter in parameters)

    def counts(self, parameters: Iterable[Tensor]) -> dict[str, float]:
        """What one step does to these parameters, by the names of counting.py."""
        every = list(parameters)
        return {**self.updates(every), "optimizer bytes": self.state_bytes(every)}

    def build(self, parameters: Iterable[Tensor], *, fused: bool | None = None) -> torch.optim.Optimizer:
        """PyTorch's optimiser of these parameters, or the file's own, in groups of one kind of tensor each.

        `fused`: whether one kernel updates all of a group; None: where the device has it. On CUDA, an optimiser updates
        a whole group at once in any case (foreach), and refuses plain tensors beside DTensors.
        """
        every = list(parameters)
        fused = self._fuses(every) if fused is None else fused
        options: Mapping[str, Any] = {"lr": self.lr, "fused": fused or None}
        if self.own:
            made = self._with_our_constants(self.own(every))
        elif self.name == "adamw":
            made = torch.optim.AdamW(every, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, **options)
        else:
            made = torch.optim.SGD(every, momentum=MOMENTUM if self.name == "sgd" else 0.0, **options)
        groups = [(group, of_kind) for group in made.param_groups for of_kind in _by_kind(group["params"])]
        made.param_groups = [{**group, "params": of_kind} for group, of_kind in groups]
        return made

    def _with_our_constants(self, made: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """With our learning rate for its first group, in the ratio that it had to the others', epsilon and decay."""
        first = float(made.param_groups[0].get("lr", 0.0))
        if not first:
            raise ValueError("the learning rate of its first group must be another number than 0")
        for group in made.param_groups:
            group["lr"] = float(group["lr"]) * self.lr / first
            group |= {
                key: ours for key, ours in OUR_CONSTANTS.items() if isinstance(group.get(key), float) and group[key]
            }
        return made


def _by_kind(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    """The same, apart by type, device and dtype."""
    kinds: dict[tuple[type[Tensor], torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in parameters:
        kinds.setdefault((type(parameter.data), parameter.device, parameter.dtype), []).append(parameter)
    return list(kinds.values())


def in_layout(tree: T, channels_last: bool) -> T:
    """A model or a batch as it is, or with images, or the weights of convolutions, channels last."""
    if not channels_last:
        return tree
    if isinstance(tree, nn.Module):
        return tree.to(memory_format=torch.channels_last)
    laid: T = mapped(lambda t: t.to(memory_format=torch.channels_last) if t.dim() == IMAGES else t, tree)
    return laid


def under_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, computed under autocast where the first tensor that it gets lies."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(next(leaves(args)).device.type, torch.bfloat16):
            return function(*args, **kwargs)

    return run


def _counting_recompute(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward whose second run, in the backward, is counted apart."""
    ran = False

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal ran
        with ExitStack() as entered:
            for observer in devices.observers if ran else ():
                entered.enter_context(observer.again())
            ran = True
            return forward(*args, **kwargs)

    return run


def _keep_every_other() -> Any:
    """What PyTorch enters for a forward and for its second run: of both, the products are numbered from 1."""
    seen = {False: 0, True: 0}

    def policy(context: Any, function: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        seen[context.is_recompute] += function.overloadpacket in PRODUCTS
        odd = function.overloadpacket in PRODUCTS and seen[context.is_recompute] % 2 == 1
        kept = odd or function.overloadpacket in ATTENTION
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpoint_options(how: Checkpointing) -> dict[str, Any]:
    """What PyTorch's checkpoint() is told for this kind, which is not none."""
    return {"use_reentrant": False, **({"context_fn": _keep_every_other} if how == "selective" else {})}


def checkpointed(function: Callable[..., Any], how: Checkpointing) -> Callable[..., Any]:
    """The function under activation checkpointing of this kind."""

    def run(*args: Any, **kwargs: Any) -> Any:
        # What traces a forward to compile it cannot trace what counts.
        counted = function if torch.compiler.is_compiling() else _counting_recompute(function)
        return checkpoint(counted, *args, **checkpoint_options(how), **kwargs)

    return run


def autocast_forward(module: nn.Module) -> nn.Module:
    """The module, whose forward computes in bfloat16 from now on."""
    change_forward(module, under_autocast(type(module).forward))
    return module


def lacks_images(model: nn.Module) -> str:
    """Why its layout makes no difference, or ''."""
    found = any(weight.dim() == IMAGES for weight in model.parameters())
    return "" if found else "the workload has no convolutions of images"


def not_called(model: nn.Module, blocks: Sequence[nn.Module], inputs: Any) -> str:
    """How many blocks the model calls, or '' if all: what is not called is neither recomputed nor compiled."""
    called = set[nn.Module]()
    hooks = [block.register_forward_pre_hook(lambda module, _: called.add(module)) for block in blocks]
    model(inputs)
    for hook in hooks:
        hook.remove()
    missing = not called or set(blocks) - called
    problem = f"the model calls {len(called)} of {len(blocks)} blocks that it has"
    return f"{problem}; blocks(model) must return modules that it calls, not new ones" if missing else ""


def change_forward(module: nn.Module, forward: Callable[..., Any], *, method: str = "forward") -> None:
    """The module gets a class of its own with this forward, which copies and replicas of nn.DataParallel keep.

    A forward that belonged to the object would go on computing with the parameters of the first.
    """
    kind = type(module)
    members = {method: forward, "__module__": kind.__module__}
    module.__class__ = type(kind.__name__, (kind,), members)
