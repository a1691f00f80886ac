"""Batches of unequal length, as of sentences padded to the longest of a batch: a cycle of them, a step on each.

Each rank draws batches of its own, as in users' loops, and the ranks of a step have unequal work. All take the same
NUM_BATCHES, each rank in an order of its own: over a cycle none has more work than another, so that a rank which is
always the slowest is slow itself.
"""

import random

import torch

from scalecard.workloads.nested import Tree, leaves

NUM_BATCHES = 8


def seed_of(seed: int, rank: int, turn: int) -> int:
    """Of the batch that a rank takes in this turn; a device alone takes them as they are numbered."""
    numbers = list(range(NUM_BATCHES))
    order = random.Random(rank).sample(numbers, NUM_BATCHES) if rank else numbers
    return seed + order[turn % NUM_BATCHES]


def shapes_differ(batches: list[tuple[Tree, Tree]]) -> bool:
    """Whether their tensors differ in more than the number of rows."""
    forms: set[tuple[torch.Size, ...]] = {tuple(leaf.shape[1:] for leaf in leaves(batch)) for batch in batches}
    return len(forms) > 1
