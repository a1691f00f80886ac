"""Proven before timed: a parallel strategy must compute what the single device computes."""

from collections.abc import Iterable

import torch
from torch import Tensor

from scalecard.records.record import Check

TOLERANCE = 1e-10  # float64, several steps: rounding in another order costs about 1e-16 per step


class ProofFailed(RuntimeError):
    """A strategy does not compute what the single device computes: its timing would mean nothing."""


def proven(name: str, difference: float, tolerance: float) -> Check:
    """The passed check, or ProofFailed with the measured difference. NaN fails."""
    check = Check(name=name, difference=difference, tolerance=tolerance)
    if not check.passed:
        raise ProofFailed(f"{name}: differs by {difference:.3g}, at most {tolerance:.3g} is allowed; not timed")
    return check


def same_parameters(name: str, ours: Iterable[Tensor], reference: Iterable[Tensor]) -> Check:
    """The largest absolute difference between two sets of float64 parameters after the same steps."""
    return proven(name, max(_largest(a, b) for a, b in zip(ours, reference, strict=True)), TOLERANCE)


def same_values(name: str, ours: Tensor, reference: Tensor) -> Check:
    """Equal element by element, with tolerance zero. The difference takes memory and is computed only if needed."""
    a, b = ours.detach().cpu(), reference.detach().cpu()
    return proven(name, 0.0 if torch.equal(a, b) else _largest(a, b), 0.0)


def _largest(a: Tensor, b: Tensor) -> float:
    difference = a.detach().cpu().to(torch.float64) - b.detach().cpu().to(torch.float64)
    return float(difference.abs().max()) if difference.numel() else 0.0
