"""All-reduce from scratch: every device holds the exact sum."""

import pytest
import torch
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import Machine
from scalecard.training.scratch_allreduce import ALGORITHMS


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_sums_are_exact_however_often(machine: Machine, name: str, count: int) -> None:
    buckets = [[torch.arange(7.0).double() + i, torch.full((2, 3), float(i)).double()] for i in range(count)]
    total = [sum((bucket[k] for bucket in buckets), torch.zeros_like(buckets[0][k])) for k in range(2)]
    with open_devices(machine, count) as devices:
        for _ in range(20):
            ALGORITHMS[name](devices, buckets)
        for device in devices:
            device.synchronize()
    for bucket in buckets:
        for ours, once in zip(bucket, total, strict=True):
            assert torch.equal(ours, once * count**19)
