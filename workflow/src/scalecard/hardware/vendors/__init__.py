"""The GPUs of each vendor, behind one protocol, and whose there are on this machine.

Another vendor is a package like nvidia/, a line in VENDORS and one in RUNTIMES (runtimes.py, the half of the protocol
that needs torch), and its cards in reference/gpu_specs.yaml. What PyTorch offers under one name for all of them
(torch.accelerator, torch.Stream, torch.distributed's default backend) needs nothing here. No torch here: the workflow
asks on every start.

What a GPU does not tell is None, or an error that `Missing.ask` turns into one, and keeps; nothing fails for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from scalecard.hardware.facts import Missing
from scalecard.hardware.vendors import nvidia

AMD = Path("/dev/kfd")


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

    def far_ends(self) -> Sequence[str | None]:
        """The PCI address to which each link that is up leads, or None for a switch; OSError if it is not known."""

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
    """The library through which ranks on a vendor's GPUs send. By default one of which nothing is to be said: gloo."""

    def process_group(self) -> str | None:
        """Which of PyTorch's process groups ranks use, where it has several."""
        return None

    def logging_to(self, folder: Path) -> dict[str, str]:
        """The variables with which each process writes in this folder, under its ID, which way it sends."""
        return {}

    def paths_in(self, log: str) -> dict[str, int]:
        """Channels by path in what it has written."""
        return {}

    def remarks(self, paths: Mapping[str, int]) -> list[str]:
        """What a reader should know about these paths."""
        return []

    def why_slow(self) -> Iterable[str]:
        """What keeps it from using the network between nodes as it could, in words."""
        return ()


class Vendor(Protocol):
    """What each vendor's package has. By default what holds where there is no GPU."""

    KIND: str  # PyTorch's type of its devices, and Machine.kind
    PACKAGES: Mapping[str, Sequence[str]] = {}  # the libraries whose versions are recorded, and who may bring each

    @property
    def collectives(self) -> Collectives:
        """Of its GPUs."""
        return Gloo()

    def session(self, missing: Missing | None = None) -> AbstractContextManager[Sequence[Gpu]]:
        """The GPUs that PyTorch will enumerate, in its order; empty without a driver, and `missing` says why."""
        return nullcontext(())

    def driver_version(self) -> str | None:
        """None if there is no GPU."""
        return None

    def problems(self, *, other_torch: bool = False) -> list[str]:
        """What is wrong with the GPUs that this process is to use, one line each, with what to do.

        `other_torch`: another PyTorch than that of this environment, or of the lock, is to use them.
        """
        return []

    def notes(self) -> list[str]:
        """Why GPUs that are here are not measured, asked where none is."""
        return []

    def counting_faults(self) -> AbstractContextManager[Callable[[], dict[int, int]]]:
        """How many critical errors each GPU has had meanwhile; those that do not tell are left out."""
        return nullcontext(dict)


class Gloo(Collectives):
    """Between CPUs."""


class Cpu(Vendor):
    """The host's CPU, whose workers stand in for GPUs where there is none, and GPUs that no module here measures."""

    KIND = "cpu"

    def notes(self) -> list[str]:
        """That there is a GPU of a vendor without a module."""
        if not AMD.exists():
            return []
        return ["an AMD GPU is here (/dev/kfd), but only NVIDIA GPUs are measured yet: the CPU is measured"]


CPU = Cpu()
VENDORS: tuple[Vendor, ...] = (nvidia, CPU)  # in this order; the CPU is measured if none of the others has a GPU


@contextmanager
def session(missing: Missing | None = None) -> Iterator[Sequence[Gpu]]:
    """The GPUs of this machine that this process may use, in PyTorch's order; `missing` says why there is none."""
    with ExitStack() as opened:
        found = (opened.enter_context(vendor.session(missing)) for vendor in VENDORS)
        yield next(filter(None, found), [])


def here() -> Vendor:
    """The vendor of those GPUs, or the CPU."""
    for vendor in VENDORS:
        with vendor.session() as gpus:
            if gpus:
                return vendor
    return CPU


def problems(*, other_torch: bool = False) -> list[str]:
    """What keeps GPUs from being measured, one line each, with what to do; `other_torch` as in `Vendor.problems`."""
    return [problem for vendor in VENDORS for problem in vendor.problems(other_torch=other_torch)]


def refuse() -> None:
    """ValueError with every problem, if there are any."""
    if found := problems():
        raise ValueError("\n".join(found))


def notes() -> list[str]:
    """Why the CPU is measured on a machine that has a GPU; empty if it has none, or if its GPUs are measured."""
    return [note for vendor in VENDORS for note in vendor.notes()] if here() is CPU else []


def why_slow() -> list[str]:
    """What keeps the network between nodes from being used as it could be, in words."""
    return [reason for vendor in VENDORS for reason in vendor.collectives.why_slow()]
