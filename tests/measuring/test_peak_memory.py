"""Peak memory per device, which only the CUDA allocator counts."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.peak_memory import peak_memory
from scalecard.measuring.variant import Variant
from simulated_clock import variants


@pytest.fixture
def variant() -> Callable[[Sequence[Device]], Variant]:
    return lambda devices: replace(variants(w=lambda: None)[0], devices=devices)


def test_on_a_cpu_it_is_skipped_once_for_the_model(
    machine: Machine, variant: Callable[[Sequence[Device]], Variant]
) -> None:
    with open_devices(replace(machine, kind="cpu"), 2) as devices:
        (record,) = peak_memory([variant(devices), variant(devices)], model="resnet50")
    assert (record.status, record.metric, record.unit) == ("skipped", "peak_memory", "B")
    assert record.case == {"model": "resnet50"}


def test_a_variant_without_devices_is_left_out(variant: Callable[[Sequence[Device]], Variant]) -> None:
    assert list(peak_memory([variant([])], model="toy")) == []
