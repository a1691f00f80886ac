"""The plain loop that every strategy is compared with: forward, loss, gradient, update by the formula. Nothing else.

It shares the network with what it judges, and no other code: no trainer, no splitting, no loss, no optimiser.

    step = parts, each a share of the step's samples with its weight
    gradient = sum over parts of weight * gradient of the part's mean loss
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from scalecard.workloads.nested import Tree, between, doubled, flipped, rows
from scalecard.workloads.recipe import BETAS, EPSILON, MOMENTUM, WEIGHT_DECAY, OptimizerSettings


@dataclass(frozen=True)
class Part:
    """Samples that are forwarded together; `weight` is their share of the step's samples unless they count more."""

    weight: float
    inputs: Tree
    targets: Tree

    def exactly(self) -> "Part":
        """The same samples in float64, in the opposite order."""
        backwards = self.backwards()
        return Part(self.weight, doubled(backwards.inputs), doubled(backwards.targets))

    def backwards(self) -> "Part":
        """The same samples in the opposite order."""
        return Part(self.weight, flipped(self.inputs), flipped(self.targets))


Step = Sequence[Part]


@dataclass(frozen=True)
class Plain:
    """Parameters before and after, buffers after, and the first step's loss before and after, if it was `scored`."""

    before: list[Tensor]
    after: list[Tensor]
    buffers: list[Tensor]
    losses: tuple[float, float]

    def only(self, parameters: Sequence[int], buffers: Sequence[int]) -> "Plain":
        """The same of some of the parameters and buffers."""
        before, after = ([values[index] for index in parameters] for values in (self.before, self.after))
        return Plain(before, after, [self.buffers[index] for index in buffers], self.losses)


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean of -log softmax(scores)[label], in float32 at least; scores (..., classes), labels (...)."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    chosen = scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (scores.logsumexp(-1) - chosen).mean()


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """That of the built-in workloads, whose own one it judges: cross-entropy of labels, else mean squared error."""
    return (outputs - targets).square().mean() if targets.is_floating_point() else cross_entropy(outputs, targets)


def train(
    model: nn.Module,
    steps: Sequence[Step],
    *,
    loss: Callable[[Any, Any], Tensor],
    optimizer: OptimizerSettings,
    bf16: bool = False,
    scored: bool = False,
) -> Plain:
    """Training on one device; running statistics of batch normalisation follow the parts in their order.

    Parameters are those that require a gradient; the others count as buffers. With `bf16` autocast computes products
    in bfloat16. If it is `scored`, which takes two more forwards, the losses are known, in float32.
    """
    parameters = trainable(model)
    before, step = _kept(parameters), optimizer_step(optimizer, parameters)
    first = loss_of(model, steps[0], loss) if scored else math.nan
    for parts in steps:
        step(gradient(model, parts, loss, bf16=bf16))
    last = loss_of(model, steps[0], loss) if scored else math.nan
    return Plain(before, _kept(parameters), _kept(untrained(model)), (first, last))


def optimizer_step(settings: OptimizerSettings, parameters: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], None]:
    """What changes the parameters by a gradient for each: by hand or, of a file that has its own optimiser, by that."""
    change = _step_of_own(settings, parameters) if settings.own else OptimizerByHand(settings, parameters).step

    def step(gradients: Sequence[Tensor]) -> None:
        if settings.clip:
            clip_by_hand(gradients, settings.clip)
        change(gradients)

    return step


def _step_of_own(settings: OptimizerSettings, parameters: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], None]:
    made = settings.build(parameters)

    def step(gradients: Sequence[Tensor]) -> None:
        for parameter, slope in zip(parameters, gradients, strict=True):
            parameter.grad = slope
        made.step()
        made.zero_grad()

    return step


def clip_by_hand(gradients: Sequence[Tensor], max_norm: float) -> None:
    """Shorten them in place to a global norm of `max_norm` (and 1e-6 as PyTorch does), if they are longer."""
    norm = math.sqrt(sum(float(slope.double().square().sum()) for slope in gradients))
    for slope in gradients:
        slope.mul_(min(1.0, max_norm / (norm + 1e-6)))


class OptimizerByHand:
    """Changes parameters in place by the formulas of recipe.py, and by no code of PyTorch's optimisers."""

    def __init__(self, settings: OptimizerSettings, parameters: Sequence[Tensor]) -> None:
        self.settings, self.parameters, self.num_steps = settings, parameters, 0
        self.moments = [[torch.zeros_like(p) for _ in range(settings.num_moments)] for p in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step with a gradient for each parameter."""
        self.num_steps += 1
        change = self._adamw if self.settings.name == "adamw" else self._sgd
        for parameter, slope, moments in zip(self.parameters, gradients, self.moments, strict=True):
            change(parameter, slope, *moments)

    def _sgd(self, parameter: Tensor, slope: Tensor, *momentum: Tensor) -> None:
        for summed in momentum:  # one, or none
            slope = summed.mul_(MOMENTUM).add_(slope)
        parameter.sub_(self.settings.lr * slope)

    def _adamw(self, parameter: Tensor, slope: Tensor, mean: Tensor, square: Tensor) -> None:
        beta1, beta2 = BETAS
        mean.mul_(beta1).add_((1 - beta1) * slope)
        square.mul_(beta2).add_((1 - beta2) * slope * slope)
        root = (square / (1 - beta2**self.num_steps)).sqrt()
        parameter.mul_(1 - self.settings.lr * WEIGHT_DECAY)
        parameter.sub_(self.settings.lr * mean / (1 - beta1**self.num_steps) / (root + EPSILON))


def _kept(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Copies in the host's memory: the device's is for what is measured."""
    return [tensor.detach().to("cpu", copy=True) for tensor in tensors]


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that require a gradient, in the model's order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def untrained(model: nn.Module) -> list[Tensor]:
    """The other parameters, then the buffers."""
    return [*(parameter for parameter in model.parameters() if not parameter.requires_grad), *model.buffers()]


def followers(model: nn.Module) -> list[Tensor]:
    """Frozen parameters that a forward may move, as those of a teacher: no more values than are trained.

    More of them are a base that is adapted, and there may be no room for a copy of it.
    """
    frozen: list[Tensor] = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    return frozen if sum(map(Tensor.numel, frozen)) <= sum(map(Tensor.numel, trainable(model))) else []


@torch.no_grad()
def restore(tensors: Sequence[Tensor], saved: Sequence[Tensor]) -> None:
    """Give tensors the values that were saved of them."""
    for tensor, then in zip(tensors, saved, strict=True):
        tensor.copy_(then)


def gradient(model: nn.Module, parts: Step, loss: Callable[[Any, Any], Tensor], *, bf16: bool = False) -> list[Tensor]:
    """The weighted sum of the parts' gradients, one tensor per parameter that requires one."""
    parameters = trainable(model)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    teacher = followers(model) if len(parts) > 1 else []
    saved = [tensor.detach().clone() for tensor in teacher]
    for number, part in enumerate(parts):
        if number:
            restore(teacher, saved)  # each share's forward moves what follows from where the step began
        with autocast(parameters[0].device, bf16):
            value = part.weight * loss(model(part.inputs), part.targets)
        value.backward()  # not autograd.grad, in which reentrant checkpoints do not work; adds up in place
    total: list[Any] = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    return total


def autocast(device: torch.device, bf16: bool) -> AbstractContextManager[object]:
    """Meanwhile products on the device are computed in bfloat16, or as ever."""
    return torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext()


@torch.no_grad()
def loss_of(model: nn.Module, parts: Step, loss: Callable[[Any, Any], Tensor]) -> float:
    """The step's loss; what a forward may change stays as it is: buffers, and teachers that follow the model."""
    moving = [*followers(model), *model.buffers()]
    saved = [tensor.detach().clone() for tensor in moving]
    value = sum(part.weight * float(loss(model(part.inputs), part.targets)) for part in parts)
    restore(moving, saved)
    return value


def epoch(
    images: Tensor,
    labels: Tensor,
    *,
    batch_size: int,
    seed: int,
    dtype: torch.dtype,
    shares: int = 1,
    uneven: bool = False,
) -> list[Step]:
    """The steps of an epoch over uint8 images (n, 1, 28, 28) in the order that the seed draws.

    Each batch is forwarded in equal shares; one that has none is left out or, if `uneven`, has shares that differ by
    one. Pixels become 0..1 in float32.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    steps: list[Step] = []
    for places in batches(len(labels), batch_size, 1 if uneven else shares):
        chosen = order[places.start : places.stop]
        each, more = divmod(len(places), shares)
        sizes = [each + (number < more) for number in range(shares)]
        steps.append(split((images[chosen] / 255).to(dtype), labels[chosen], [size for size in sizes if size]))
    return steps


def batches(num_images: int, batch_size: int, shares: int = 1) -> list[range]:
    """Where the batches of an epoch lie in its order; one that cannot be shared out equally is left out."""
    starts = range(0, num_images, batch_size)
    every = [range(start, min(start + batch_size, num_images)) for start in starts]
    return [places for places in every if len(places) % shares == 0]


def split(inputs: Tree, targets: Tree, sizes: Sequence[int]) -> list[Part]:
    """The parts of a batch with these sizes, each weighted by its share of the samples."""
    whole = rows(inputs)
    assert sum(sizes) == whole, "the parts make up the batch"
    return [
        Part(size / whole, between(inputs, end - size, end), between(targets, end - size, end))
        for size, end in zip(sizes, accumulate(sizes), strict=True)
    ]
