"""What a model takes and gives: a tensor, or tuples, lists and dicts of them, whose rows are samples.

Batches may be of unequal length, as of sentences padded to the longest of a batch: a cycle of them, a step on each.
Each rank draws batches of its own, as in users' loops, and the ranks of a step have unequal work. All take the same
NUM_BATCHES, each rank in an order of its own: over a cycle none has more work than another, so that a rank which is
always the slowest is slow itself.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Tree = Any
NUM_BATCHES = 8


def mapped(function: Callable[[Tensor], Any], tree: Tree) -> Tree:
    """The same structure with function(tensor) in the place of every tensor."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: mapped(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        values = [mapped(function, value) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return tree


def leaves(tree: Tree) -> Iterator[Tensor]:
    """Every tensor of a tree, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        yield from (leaf for value in tree.values() for leaf in leaves(value))
    elif isinstance(tree, tuple | list):
        yield from (leaf for value in tree for leaf in leaves(value))


def doubled(tree: Tree) -> Tree:
    """The same numbers in float64; whole numbers, such as tokens, stay what they are."""
    return mapped(in_float64, tree)


def in_float64(tensor: Tensor) -> Tensor:
    """The same numbers in float64, complex ones of two of them; whole ones stay what they are."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def exactly(model: nn.Module) -> nn.Module:
    """The model, whose numbers become float64 in place: .double() would leave complex ones as they are."""
    model._apply(in_float64)
    return model


def at_least_float32(scores: Tensor) -> Tensor:
    """In float32 at least: on GPUs autocast leaves cross_entropy in bfloat16, unlike log_softmax and nll_loss."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def flipped(tree: Tree) -> Tree:
    """The same samples in the opposite order."""
    return mapped(lambda tensor: tensor.flip(0), tree)


def rows(tree: Tree) -> int:
    """The number of samples: the length of the first tensor."""
    return len(next(leaves(tree)))


def between(tree: Tree, start: int, end: int) -> Tree:
    """The samples of these numbers."""
    return mapped(lambda tensor: tensor[start:end], tree)


def chunks(tree: Tree, size: int) -> list[Tree]:
    """Consecutive pieces of at most `size` samples."""
    return [between(tree, start, start + size) for start in range(0, rows(tree), size)]


def sizes(count: int, size: int) -> tuple[int, ...]:
    """Of the chunks of so many samples; the last one may have fewer."""
    whole, rest = divmod(count, size)
    return (size,) * whole + (rest,) * bool(rest)


def share(tree: Tree, rank: int, ranks: int) -> Tree:
    """The equal share of one of several ranks."""
    return chunks(tree, rows(tree) // ranks)[rank]


def seed_of(seed: int, rank: int, turn: int) -> int:
    """Of the batch of unequal length that a rank takes in this turn; a device alone takes them as they are numbered."""
    numbers = list(range(NUM_BATCHES))
    order = random.Random(rank).sample(numbers, NUM_BATCHES) if rank else numbers
    return seed + order[turn % NUM_BATCHES]


def shapes_differ(batches: list[tuple[Tree, Tree]]) -> bool:
    """Whether their tensors differ in more than the number of rows."""
    forms: set[tuple[torch.Size, ...]] = {tuple(leaf.shape[1:] for leaf in leaves(batch)) for batch in batches}
    return len(forms) > 1
