"""What every way to train ResNet-50 must do, by the plain loop on one device; each is computed once."""

import functools
from collections.abc import Callable, Sequence
from functools import partial

import torch

from scalecard.measuring.proof import Change, Trained, expected
from scalecard.parallel.resnet50 import Workload, plain
from scalecard.workloads.models import AFTER_LAYER2


class Plainly:
    """Several steps in float64, `check_steps`, and `batches` steps as timed."""

    def __init__(self, device: torch.device, check_steps: int, *, batches: int = 1) -> None:
        self.device, self.check_steps, self.batches = device, check_steps, batches
        self._wanted = functools.cache(self._compute)

    def of(self, load: Workload, sizes: Sequence[int]) -> Callable[[], Trained | Change]:
        """With micro-batches of these sizes; in float64, with batch norm in eval mode, they make no difference.

        Nor does where the model is cut.
        """
        parts = [load.batch_size] if load.exact else sizes
        return partial(self._wanted, load.cut(AFTER_LAYER2), tuple(parts))

    def _compute(self, load: Workload, sizes: tuple[int, ...]) -> Trained | Change:
        plainly = partial(plain, load, self.device, sizes, self.steps(load))
        return expected("the plain loop", plainly, exact=load.exact)

    def steps(self, load: Workload) -> int:
        """How many it takes."""
        return self.check_steps if load.exact else self.batches
