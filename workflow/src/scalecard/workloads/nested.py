"""What a model takes and gives: a tensor, or tuples, lists and dicts of them, whose rows are samples."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

Tree = Any


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
    return mapped(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, tree)


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
