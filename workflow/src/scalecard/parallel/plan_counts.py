"""What a step of a partition must do, worked out from the layers' shapes: bytes exchanged, values and work replicated.

An all-gather of A bytes over n devices moves (n - 1) A to all of them together, an all-reduce 2 (n - 1) A. Every layer
but the first, whose input needs no gradient, exchanges:

    column   its output is all-gathered, the gradient of its input all-reduced
    row      its output is all-reduced, the gradient of its input all-gathered
    pairs    the second layer's output is all-reduced, the gradient of the first one's input too

Besides, device 0 sends the gradients of what is replicated to the n - 1 others. Data parallelism's all-reduce moves
2 (n - 1) times the gradients of all parameters, whatever the batch.
"""

from dataclasses import dataclass

from scalecard.parallel.tensor_parallel_plans import BLOCKS, SIDES

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
    counts = of(model, partition)
    per_image = counts.gathered + 2 * counts.reduced
    return (num_devices - 1) * itemsize * (batch_size * per_image + counts.replicated)


def of(model: str, partition: str) -> Counts:
    """The counts of 'lenet' or 'resnet18', divided by 'column', 'row' or 'pairs'."""
    return LENET[partition] if model == "lenet" else _resnet18(partition)


C1, C2, D1, D2 = 20 * 13**2, 50 * 4**2, 128, 10  # outputs of LeNet's layers, the convolutions' pooled
SUM = 50 * 9**2  # the second convolution's, before it is pooled
LENET = {
    "column": Counts(gathered=C1 + C2 + D1 + D2, reduced=C1 + C2 + D1, replicated=0, replicated_flops=0),
    "row": Counts(
        gathered=C1 + C2 + D1,
        reduced=SUM + D1 + D2,
        replicated=20 * 9 + 20 + 50 + 128 + 10,  # the first layer, and biases
        replicated_flops=FORWARD_AND_WEIGHTS * 2 * 26**2 * 20 * 9,
    ),
    "pairs": Counts(gathered=0, reduced=SUM + D2 + C2, replicated=50 + 10, replicated_flops=0),
}


def _resnet18(partition: str) -> Counts:
    """A skip connection that is a convolution has the block's input, and its output's shape."""
    stem, head = 64 * 9 + 64 + 2 * 64, 512 * 10 + 10
    flops = FORWARD_AND_WEIGHTS * 2 * SIDES[0] ** 2 * 64 * 9 + AND_INPUTS * 2 * 512 * 10
    gathered, reduced = 0, 0
    for block in BLOCKS:
        inputs, outputs, skip = block.in_values, block.out_values, block.out_values * block.reshapes
        if partition == "column":
            gathered += 2 * outputs + skip
            reduced += inputs + outputs
        elif partition == "row":
            gathered += inputs + outputs
            reduced += 2 * outputs + skip
        else:
            gathered += skip
            reduced += inputs + outputs
    return Counts(gathered, reduced, stem + head + _norms(partition), flops)


def _norms(partition: str) -> int:
    """Parameters of the batch norms that are replicated: two per channel."""
    each = {"column": 0, "row": 2, "pairs": 1}[partition]
    return sum(2 * block.channels * (each + (block.reshapes and partition == "row")) for block in BLOCKS)
