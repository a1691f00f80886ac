"""What a vendor's module says of its GPUs. No torch here: the workflow asks on every start.

What a GPU does not tell is None, or an error that `Missing.ask` turns into one, and keeps; nothing fails for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from scalecard.hardware.optional_facts import Missing

SWITCH = "switch"


class Gpu(Protocol):
    """A GPU that this process may use, valid inside a session of its vendor."""

    @property
    def name(self) -> str:
        """As PyTorch names it too."""

    @property
    def uuid_hash(self) -> str:
        """Twelve hex digits that tell this card from every other one."""

    def pci_address(self) -> str:
        """As in the kernel's /sys/bus/pci/devices: '0000:1a:00.0'; the driver's error if it does not tell."""

    @property
    def memory_bytes(self) -> int | None:
        """All of its memory."""

    def facts(self, ask: Callable[..., Any]) -> dict[str, Any]:
        """Bytes, PCIe link, links to other GPUs, watts, MHz, ECC, as in result.schema.json; `ask` is `Missing.ask`."""

    def common_ancestor(self, other: Any) -> int:
        """Where the ways of the two meet: 0 on one board, 10 to 30 at PCIe's bridges, 40 in a node, 50 across them."""

    def far_ends(self) -> list[str]:
        """Where each of its links that is up leads: SWITCH, or a PCI address. OSError if the driver does not say."""

    def state(self, ours: Callable[[int], bool]) -> dict[str, Any]:
        """The GPU now: SM clock in MHz, degrees Celsius, watts, what lowers its clock, bytes others' processes use.

        The PCIe link is read too: an idle card lowers its generation, so only a reading under load counts. `ours` says
        of a process ID whether it belongs to this measurement.
        """

    @property
    def energy_joules(self) -> float | None:
        """All that it has used since its driver was loaded."""

    @property
    def utilisation(self) -> float | None:
        """The share of the driver's own window, under a second, in which a kernel ran: 0 to 1."""

    @property
    def admits_one_process(self) -> bool:
        """Whether it refuses a second process."""

    def num_others(self, ours: Callable[[int], bool]) -> int:
        """How many processes that are neither ours nor a display server use it."""

    def display_servers(self) -> dict[str, int]:
        """The display servers that use it, and the bytes of its memory that each has."""

    def error_counters(self) -> Mapping[str, Callable[[], int | None]]:
        """What reads each counter of errors, by its name."""


class Collectives(Protocol):
    """The library through which ranks on a vendor's GPUs send."""

    def process_group(self) -> str:
        """Which of PyTorch's process groups ranks use, where it has several."""

    def logging_to(self, folder: Path) -> dict[str, str]:
        """The variables with which each process writes in this folder, under its ID, which way it sends."""

    def paths_in(self, log: str) -> dict[str, int]:
        """Channels by path in what it has written."""

    def remarks(self, paths: Mapping[str, int]) -> list[str]:
        """What a reader should know about these paths."""

    def why_slow(self) -> Iterable[str]:
        """What keeps data from going directly between nodes' GPUs, on a machine with a fast network."""


class Vendor(Protocol):
    """A module of this folder."""

    KIND: str  # PyTorch's type of its devices, and Machine.kind
    PACKAGES: Mapping[str, Sequence[str]]  # each library whose version is recorded, and the packages that may bring it

    @property
    def collectives(self) -> Collectives | None:
        """None where there is nothing to say of it."""

    def session(self, missing: Missing | None = None) -> AbstractContextManager[Sequence[Gpu]]:
        """The GPUs that PyTorch will enumerate, in its order; empty without a driver, and `missing` says why."""

    def driver_version(self) -> str | None:
        """None if there is no GPU."""

    def problems(self) -> list[str]:
        """What is wrong with the GPUs that this process is to use, one line each, with what to do."""

    def notes(self) -> list[str]:
        """Why GPUs that are here are not measured, asked where none is."""

    def counting_faults(self) -> AbstractContextManager[Callable[[], dict[int, int]]]:
        """How many critical errors each GPU has had meanwhile; those that do not tell are left out."""
