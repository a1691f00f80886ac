"""Which GPUs the NVLinks of each GPU lead to, by the driver's word, inside a session of nvml.py."""

from collections.abc import Sequence
from typing import Any

import pynvml

SWITCH = "switch"


def num_up(handle: Any) -> int:
    """NVLinks that are up."""
    return len(links_up(handle))


def links_up(handle: Any) -> list[int]:
    """NVML does not say how many links there are, so ask until it has no such link."""
    up = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED:
                up.append(link)
        except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported):
            break
    return up


def far_ends(handle: Any) -> list[str]:
    """What each NVLink that is up leads to: SWITCH, or a PCI address. OSError if the driver does not say."""
    ends = []
    for link in links_up(handle):
        kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN:
            raise OSError("the driver does not say where its NVLinks lead")
        is_switch = kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        ends.append(SWITCH if is_switch else address(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))
    return ends


def address(place: Any) -> str:
    """NVML's PCI address as the kernel writes it: '0000:1a:00.0'."""
    domain, rest = str(place.busId).lower().split(":", 1)
    return f"{domain[-4:]}:{rest}"


def pairs(ends: Sequence[list[str] | None], places: Sequence[str | None]) -> list[list[int | None]]:
    """How many links lead from each GPU to each other one, from the far ends of its links and the GPUs' own addresses.

    All links of a GPU that lead to NVSwitches lead to every other GPU that is on switches too. None on the diagonal,
    and where one of the two does not say.
    """
    every = range(len(ends))
    return [[None if a == b else _between(ends[a], ends[b], places[b]) for b in every] for a in every]


def _between(mine: list[str] | None, theirs: list[str] | None, place: str | None) -> int | None:
    if mine is None or theirs is None or place is None:
        return None
    return mine.count(SWITCH) if SWITCH in theirs else mine.count(place)
