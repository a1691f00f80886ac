"""The host's CPU, whose workers stand in for GPUs where there is none, and GPUs that no module here measures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from scalecard.hardware.optional_facts import Missing
from scalecard.hardware.vendors.protocol import Gpu

KIND = "cpu"
PACKAGES: Mapping[str, Sequence[str]] = {}
AMD = Path("/dev/kfd")
collectives = None  # gloo has one way


@contextmanager
def session(missing: Missing | None = None) -> Iterator[list[Gpu]]:
    """No GPU."""
    yield []


def driver_version() -> None:
    """A CPU has none."""


def problems() -> list[str]:
    """None: every CPU is measured as it is."""
    return []


def notes() -> list[str]:
    """That there is a GPU of a vendor without a module."""
    if not AMD.exists():
        return []
    return ["an AMD GPU is here (/dev/kfd), but only NVIDIA GPUs are measured yet: the CPU is measured"]


@contextmanager
def counting_faults() -> Iterator[Callable[[], dict[int, int]]]:
    """Of no GPU."""
    yield dict
