"""All-reduce from scratch: every device holds the exact sum."""

import pytest
import torch
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import Machine
from scalecard.parallel.scratch_allreduce import ALGORITHMS, bytes_received


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


def test_what_devices_receive_by_hand() -> None:
    """Ten float32 values on three devices. Naive: all of it through the first. Ring: in chunks of 4, 3 and 3."""
    assert bytes_received("naive", 3, 10) == (160, 80)
    assert bytes_received("ring", 3, 10) == (160, 56), "20 values but a chunk of 3 each time"
    assert bytes_received("ring", 1, 10) == bytes_received("naive", 1, 10) == (0, 0)
