"""How many devices are measured, on how many strategies are proven, and how many threads each gets."""

from scalecard.hardware.machine import Machine


def threads_each(machine: Machine) -> int:
    """Intra-op threads of one CPU worker or rank: its share of the cores."""
    return max(1, machine.cores // machine.num_devices)


def provable(machine: Machine) -> int:
    """On how many devices strategies are proven: up to four, which CPU workers can be on any machine."""
    return 4 if machine.emulated else min(4, machine.num_devices)


def device_counts(num_devices: int) -> list[int]:
    """The powers of two up to N, and N: [1, 2, 4, 6] for 6."""
    powers = [2**i for i in range(num_devices.bit_length()) if 2**i <= num_devices]
    return sorted({*powers, num_devices})
