"""Which NVLinks of a card are up, where they lead, and their errors; each by the card's handle of a session."""

from typing import Any

import pynvml

from scalecard.hardware.vendors.protocol import SWITCH


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


def errors(handle: Any, counter: int) -> int | None:
    """The sum of a counter over the links that are up; None if there is none."""
    links = links_up(handle)
    return sum(pynvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, counter) for link in links) if links else None
