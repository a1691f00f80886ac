"""Whole numbers with which collectives are proven: known for every place and rank, and exact in float32 when summed.

They are made and compared on the device of the tensor, chunk by chunk: all at once, those of a gigabyte would take
several times as much memory, and on the host eight times that for eight ranks.
"""

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from scalecard.records.record import Check

PERIOD = 997  # a prime, so that parts of equal length differ; the sums of 16,000 ranks are exact
CHUNK = 2**18  # values at a time, which a cache of a CPU holds

Value = Callable[[Tensor], Tensor]  # of places 0, 1, 2 ... in a flat tensor, what belongs there


def number(places: Tensor, rank: Tensor | int) -> Tensor:
    """What a rank has at these places: at least 1, so that the sum of all lacks something without it."""
    return places * (rank + 1) % PERIOD + 1


def total(places: Tensor, ranks: Iterable[int]) -> Tensor:
    """The sum of what these ranks have."""
    return torch.stack([number(places, rank) for rank in ranks]).sum(dim=0)


def fill(tensor: Tensor, value: Value) -> None:
    """Give every element of a flat tensor the value of its place."""
    for places, chunk in _chunks(tensor):
        chunk.copy_(value(places))


def same_as(name: str, tensor: Tensor, value: Value) -> Check:
    """Each element of a flat tensor against the value of its place: tolerance zero, infinite where it is not finite."""
    found = [float((chunk - value(places)).abs().max()) for places, chunk in _chunks(tensor)]
    difference = max(found, default=0.0) if all(map(math.isfinite, found)) else math.inf
    return Check(name=name, dtype=str(tensor.dtype).removeprefix("torch."), difference=difference, tolerance=0.0)


def _chunks(tensor: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Places, and the elements there."""
    for start in range(0, len(tensor), CHUNK):
        chunk = tensor[start : start + CHUNK]
        yield torch.arange(start, start + len(chunk), device=tensor.device), chunk
