"""What differs from the single device is refused before it is timed."""

import pytest
import torch
from scalecard.measuring.proof import ProofFailed, proven, same_parameters, same_values


@pytest.mark.parametrize(("difference", "told"), [(1e-3, r"parameters: .*0\.001.*1e-10"), (float("nan"), "nan")])
def test_a_difference_beyond_the_tolerance_is_refused(difference: float, told: str) -> None:
    with pytest.raises(ProofFailed, match=told):
        proven("parameters", difference, 1e-10)


def test_values_must_be_equal_and_parameters_nearly() -> None:
    ours = torch.arange(5.0, dtype=torch.float64)
    assert same_values("sum", ours, ours.clone()).difference == 0
    with pytest.raises(ProofFailed, match="sum"):
        same_values("sum", ours + 1e-12, ours)
    assert 0 < same_parameters("w", [ours + 1e-12], [ours]).difference < 1e-11
    with pytest.raises(ProofFailed, match="w"):
        same_parameters("w", [ours, ours + 1e-6], [ours, ours])
