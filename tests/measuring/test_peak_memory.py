"""Peak memory per device, which only the CUDA allocator counts."""

from collections.abc import Sequence
from dataclasses import replace

from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Timing
from scalecard.measuring.peak_memory import peak_memory
from support.simulated_clock import ready, variants


def timing(devices: Sequence[Device]) -> Timing:
    (variant,) = variants(w=lambda: None)
    return Timing(variant=replace(variant, devices=devices), prepared=ready(lambda: None))


def test_on_a_cpu_it_is_skipped_once_for_the_model(machine: Machine) -> None:
    with open_devices(replace(machine, kind="cpu"), 2) as devices:
        (record,) = peak_memory([timing(devices), timing(devices)], workload="resnet50")
    assert (record.status, record.metric, record.unit) == ("skipped", "peak_memory", "B")
    assert record.case == {"workload": "resnet50"}


def test_a_variant_without_devices_is_left_out() -> None:
    assert list(peak_memory([timing([])], workload="toy")) == []
