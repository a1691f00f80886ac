"""The GPUs of each vendor, behind one protocol, and whose there are on this machine.

Another vendor is a module or a package like nvidia/, a line in VENDORS, and its cards in reference/gpu_specs.yaml. What
needs torch is in runtimes.py. What PyTorch offers under one name for all of them (torch.accelerator, torch.Stream,
torch.distributed's default backend) needs nothing here.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from scalecard.hardware.optional_facts import Missing
from scalecard.hardware.vendors import cpu, nvidia
from scalecard.hardware.vendors.protocol import Gpu, Vendor

VENDORS: tuple[Vendor, ...] = (nvidia, cpu)  # in this order; the CPU is measured if none of the others has a GPU


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
    return cpu


def remarks(paths: Mapping[str, int]) -> list[str]:
    """What a reader should know about the paths on which ranks send, channels by path."""
    library = here().collectives
    return library.remarks(paths) if library else []


def problems() -> list[str]:
    """What keeps GPUs from being measured, one line each, with what to do."""
    return [problem for vendor in VENDORS for problem in vendor.problems()]


def refuse() -> None:
    """ValueError with every problem, if there are any."""
    if found := problems():
        raise ValueError("\n".join(found))


def notes() -> list[str]:
    """Why the CPU is measured on a machine that has a GPU; empty if it has none, or if its GPUs are measured."""
    return [note for vendor in VENDORS for note in vendor.notes()] if here() is cpu else []
