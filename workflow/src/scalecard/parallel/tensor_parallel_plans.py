"""How LeNet and ResNet-18 are divided over devices, layer by layer, and what that exchanges.

    column   a layer's outputs are divided: each device has all of its input, and computes a slice of its output
    row      a layer's inputs are divided: each device has a slice of its input, and computes a summand of its output
    pairs    column, then row: the slices that the first layer makes are those that the second one needs, so that
             nothing is exchanged between the two, only operations within a channel (bias, ReLU, pooling, batch norm)

LeNet, C for a convolution (with bias, ReLU and pooling) and D for a dense layer; a * stands for what has no bias yet:

    column   C1 GATHER COPY C2 GATHER COPY D1 GATHER COPY D2 GATHER
    row      C1 SPLIT C2* REDUCE bias SPLIT D1* REDUCE bias SPLIT D2* REDUCE bias      C1, with one channel, is whole
    pairs    C1 C2* REDUCE bias COPY D1 D2* REDUCE bias

A block of ResNet-18, N for batch norm. The skip connection keeps its whole input (KEEP) or, where the block changes the
shape, is itself a 1x1 convolution and a batch norm, divided like the others:

    column   COPY C1 N1 ReLU GATHER COPY C2 N2 GATHER (+ skip) ReLU                           skip: KEEP, or C N GATHER
    row      SPLIT C1 REDUCE N1 ReLU SPLIT C2 REDUCE N2 (+ skip) ReLU                         skip: KEEP, or C REDUCE N
    pairs    COPY C1 N1 ReLU C2 REDUCE N2 (+ skip) ReLU                                       skip: KEEP, or C N GATHER

Batch norm sees the whole batch on every device, so that it computes the same in training mode too. The first
convolution and the last layer of ResNet-18, with one channel and ten units, are replicated.

What a step of a partition must do is worked out from the layers' shapes: bytes exchanged, values and work replicated.
An all-gather of A bytes over n devices moves (n - 1) A to all of them together, an all-reduce 2 (n - 1) A. Every layer
but the first, whose input needs no gradient, exchanges:

    column   its output is all-gathered, the gradient of its input all-reduced
    row      its output is all-reduced, the gradient of its input all-gathered
    pairs    the second layer's output is all-reduced, the gradient of the first one's input too

Besides, device 0 sends the gradients of what is replicated to the n - 1 others. Data parallelism's all-reduce moves
2 (n - 1) times the gradients of all parameters, whatever the batch.

Source of pairs: Shoeybi et al., Megatron-LM (2019), section 3.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import functional

from scalecard.parallel.tensor_parallel import COPY, GATHER, KEEP, REDUCE, SPLIT, Plan, Run, Segment
from scalecard.workloads.builtin.lenet import in_fast_layout

PARTITIONS = ("column", "row", "pairs")


def plan(model: str, partition: str) -> Plan:
    """How 'lenet' or 'resnet18' is divided; ValueError names a partition that does not exist."""
    if partition not in PARTITIONS:
        raise ValueError(f"partition = {partition}: must be one of {', '.join(PARTITIONS)}")
    return _lenet(partition) if model == "lenet" else _resnet18(partition)


@dataclass(frozen=True)
class _Layer:
    """A layer of LeNet: its weight's number, the product with it, what follows, and the weight's two dimensions."""

    number: int
    product: Callable[..., Tensor]
    follows: Callable[[Tensor], Tensor]
    outputs: int
    inputs: int

    def whole(self, module: Any, x: Tensor) -> Tensor:
        """The layer with its bias: on a slice of its outputs, that slice."""
        return self.follows(self.product(x, module.weights[self.number], module.weights[self.number + 1]))

    def part(self, module: Any, x: Tensor) -> Tensor:
        """A summand of its outputs, without bias, of a slice of its inputs."""
        return self.product(x, module.weights[self.number])

    def rest(self, module: Any, total: Tensor) -> Tensor:
        """What follows the sum, in a row: a dense layer's inputs are divided by number, not by channel."""
        bias = module.weights[self.number + 1]
        return self.follows(total + (bias[:, None, None] if total.dim() > 2 else bias)).flatten(1)

    def divided(self, *, column: bool) -> dict[str, int]:
        """Which dimensions of its weight and of its bias."""
        weight, bias = f"weights.{self.number}", f"weights.{self.number + 1}"
        return {weight: self.outputs, bias: 0} if column else {weight: self.inputs}


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    x, weight = in_fast_layout(x, weight)
    return functional.conv2d(x, weight, bias)


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product = x.flatten(1) @ weight
    return product if bias is None else product + bias


def _pooled(h: Tensor) -> Tensor:
    return functional.avg_pool2d(functional.relu(h), 2, 2)


LENET = (
    _Layer(0, _convolved, _pooled, outputs=0, inputs=1),
    _Layer(2, _convolved, _pooled, outputs=0, inputs=1),
    _Layer(4, _multiplied, functional.relu, outputs=1, inputs=0),
    _Layer(6, _multiplied, lambda h: h, outputs=1, inputs=0),
)


def _lenet(partition: str) -> Plan:
    divided: dict[str, int] = {}
    for number, layer in enumerate(LENET):
        if partition != "row" or number:
            divided |= layer.divided(column=partition == "column" or (partition == "pairs" and number % 2 == 0))
    return Plan([*{"column": _lenet_columns, "row": _lenet_rows, "pairs": _lenet_pairs}[partition]()], divided)


def _lenet_columns() -> Iterator[Segment]:
    for layer in LENET:
        yield Segment(_one(layer.whole), (GATHER if layer is LENET[-1] else GATHER + COPY,))
    yield Segment(lambda module, scores: (scores,))


def _lenet_rows() -> Iterator[Segment]:
    before: Callable[[Any, Tensor], Tensor] = LENET[0].whole
    for layer in LENET[1:]:
        yield Segment(_one(before), (SPLIT,))
        yield Segment(_one(layer.part), (REDUCE,))
        before = layer.rest
    yield Segment(_one(before))


def _lenet_pairs() -> Iterator[Segment]:
    c1, c2, d1, d2 = LENET
    yield Segment(lambda module, images: (c2.part(module, c1.whole(module, images)),), (REDUCE,))
    yield Segment(_one(c2.rest), (COPY,))
    yield Segment(lambda module, h: (d2.part(module, d1.whole(module, h)),), (REDUCE,))
    yield Segment(_one(d2.rest))


def _one(work: Callable[[Any, Tensor], Tensor]) -> Run:
    return lambda module, x: (work(module, x),)


@dataclass(frozen=True)
class _Block:
    """A residual block of ResNet-18: the pieces of it that run between exchanges, each of which passes the skip on."""

    name: str
    in_values: int  # per image
    out_values: int
    channels: int
    reshapes: bool  # the skip connection is a convolution

    def first(self, module: Any, x: Tensor, *skip: Tensor) -> tuple[Tensor, ...]:
        """A slice of what is between the two convolutions; a slice of the skip if it is a convolution."""
        own = module.get_submodule(self.name)
        return own.relu(own.bn1(own.conv1(x))), *(skip or (own.downsample(x),))

    def second(self, module: Any, h: Tensor, skip: Tensor) -> tuple[Tensor, ...]:
        """A slice of what is added to the skip."""
        own = module.get_submodule(self.name)
        return own.bn2(own.conv2(h)), skip

    def sum(self, module: Any, h: Tensor, skip: Tensor) -> Tensor:
        """The block's output."""
        output: Tensor = module.get_submodule(self.name).relu(h + skip)
        return output

    def first_part(self, module: Any, x: Tensor, *skip: Tensor) -> tuple[Tensor, ...]:
        """A summand of the first convolution, and of the skip if it is one."""
        own = module.get_submodule(self.name)
        return own.conv1(x), *(skip or (own.downsample[0](x),))

    def between(self, module: Any, h: Tensor, skip: Tensor) -> tuple[Tensor, ...]:
        """From the first sum to the second convolution."""
        own = module.get_submodule(self.name)
        return own.relu(own.bn1(h)), own.downsample[1](skip) if self.reshapes else skip

    def second_part(self, module: Any, h: Tensor, skip: Tensor) -> tuple[Tensor, ...]:
        """A summand of the second convolution."""
        return module.get_submodule(self.name).conv2(h), skip

    def both(self, module: Any, x: Tensor, *skip: Tensor) -> tuple[Tensor, ...]:
        """A summand of the second convolution, by a slice of the first."""
        return self.second_part(module, *self.first(module, x, *skip))

    def rest(self, module: Any, total: Tensor, skip: Tensor) -> Tensor:
        """The block's output, from the second convolution's sum."""
        return self.sum(module, module.get_submodule(self.name).bn2(total), skip)

    def divided(self, partition: str) -> Iterator[tuple[str, int]]:
        """The tensors of the block that are divided, and their dimensions."""
        layers = {"conv1": "bn1", "conv2": "bn2"} | ({"downsample.0": "downsample.1"} if self.reshapes else {})
        for convolution, norm in layers.items():
            outputs = partition == "column" or (partition == "pairs" and convolution != "conv2")
            yield f"{self.name}.{convolution}.weight", 0 if outputs else 1
            for tensor in ("weight", "bias", "running_mean", "running_var") if outputs else ():
                yield f"{self.name}.{norm}.{tensor}", 0


SIDES, CHANNELS = (28, 14, 7, 4), (64, 128, 256, 512)  # of what the four stages of ResNet-18 make of 28 x 28 pixels


def _blocks() -> Iterator[_Block]:
    before = CHANNELS[0] * SIDES[0] ** 2
    for stage, (side, channels) in enumerate(zip(SIDES, CHANNELS, strict=True), start=1):
        for number in range(2):
            after = channels * side**2
            yield _Block(f"layer{stage}.{number}", before, after, channels, stage > 1 and number == 0)
            before = after


BLOCKS = tuple(_blocks())


def _resnet18(partition: str) -> Plan:
    segments: list[Segment] = []
    entrance = SPLIT if partition == "row" else COPY
    before: Callable[..., Tensor] = _stem
    for block in BLOCKS:
        segments.append(Segment(_entering(before, block), (entrance,) if block.reshapes else (entrance, KEEP)))
        inner, before = _inside(block, partition)
        segments += inner
    segments.append(Segment(lambda module, *tensors, last=before: (_head(module, last(module, *tensors)),)))
    return Plan(segments, {name: dimension for block in BLOCKS for name, dimension in block.divided(partition)})


def _inside(block: _Block, partition: str) -> tuple[Sequence[Segment], Callable[..., Tensor]]:
    """The segments of a block, and what makes its output after them."""
    gathered, reduced = (GATHER, REDUCE) if block.reshapes else (KEEP, KEEP)
    if partition == "column":
        return [Segment(block.first, (GATHER + COPY, gathered)), Segment(block.second, (GATHER, KEEP))], block.sum
    if partition == "pairs":
        return [Segment(block.both, (REDUCE, gathered))], block.rest
    inner = [Segment(block.first_part, (REDUCE, reduced)), Segment(block.between, (SPLIT, KEEP))]
    return [*inner, Segment(block.second_part, (REDUCE, KEEP))], block.rest


def _entering(before: Callable[..., Tensor], block: _Block) -> Run:
    """Twice the output of what is before, if the block's skip connection keeps it."""

    def run(module: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        output = before(module, *tensors)
        return (output,) if block.reshapes else (output, output)

    return run


def _stem(module: Any, images: Tensor) -> Tensor:
    output: Tensor = module.relu(module.bn1(module.conv1(images)))
    return output


def _head(module: Any, h: Tensor) -> Tensor:
    scores: Tensor = module.fc(module.avgpool(h).flatten(1))
    return scores


FORWARD_AND_WEIGHTS, AND_INPUTS = 2, 3  # products of a layer in a step: the input's gradient may not be needed


@dataclass(frozen=True)
class Counts:
    """Values per image that are all-gathered and all-reduced, replicated parameters, and their FLOPs per image."""

    gathered: int
    reduced: int
    replicated: int
    replicated_flops: int


def bytes_exchanged(model: str, partition: str, *, num_devices: int, batch_size: int, itemsize: int = 4) -> int:
    """What all devices receive in one step; `itemsize` is that of a value."""
    step = counts(model, partition)
    per_image = step.gathered + 2 * step.reduced
    return (num_devices - 1) * itemsize * (batch_size * per_image + step.replicated)


def counts(model: str, partition: str) -> Counts:
    """The counts of 'lenet' or 'resnet18', divided by 'column', 'row' or 'pairs'."""
    return COUNTS_OF_LENET[partition] if model == "lenet" else _counts_of_resnet18(partition)


C1, C2, D1, D2 = 20 * 13**2, 50 * 4**2, 128, 10  # outputs of LeNet's layers, the convolutions' pooled
SUM = 50 * 9**2  # the second convolution's, before it is pooled
COUNTS_OF_LENET = {
    "column": Counts(gathered=C1 + C2 + D1 + D2, reduced=C1 + C2 + D1, replicated=0, replicated_flops=0),
    "row": Counts(
        gathered=C1 + C2 + D1,
        reduced=SUM + D1 + D2,
        replicated=20 * 9 + 20 + 50 + 128 + 10,  # the first layer, and biases
        replicated_flops=FORWARD_AND_WEIGHTS * 2 * 26**2 * 20 * 9,
    ),
    "pairs": Counts(gathered=0, reduced=SUM + D2 + C2, replicated=50 + 10, replicated_flops=0),
}


def _counts_of_resnet18(partition: str) -> Counts:
    """A skip connection that is a convolution has the block's input, and its output's shape."""
    stem, head = 64 * 9 + 64 + 2 * 64, 512 * 10 + 10
    flops = FORWARD_AND_WEIGHTS * 2 * SIDES[0] ** 2 * 64 * 9 + AND_INPUTS * 2 * 512 * 10
    gathered, reduced, norms = 0, 0, 0  # and parameters of batch norms that are replicated: two per channel
    for block in BLOCKS:
        inputs, outputs, skip = block.in_values, block.out_values, block.out_values * block.reshapes
        if partition == "column":
            gathered += 2 * outputs + skip
            reduced += inputs + outputs
        elif partition == "row":
            gathered += inputs + outputs
            reduced += 2 * outputs + skip
            norms += 2 * block.channels * (2 + block.reshapes)
        else:
            gathered += skip
            reduced += inputs + outputs
            norms += 2 * block.channels
    return Counts(gathered, reduced, stem + head + norms, flops)
