"""Where the two ends of a copy lie."""

from typing import Any

import pytest
import torch
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import Machine
from scalecard.parts import copies


def test_only_the_hosts_end_of_a_copy_is_pinned(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch refuses to pin what is on a GPU, and the case of a copy says `pinned` of both of its ends."""
    pinned, make = list[int](), torch.empty

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(len(tensor))
        return tensor

    def make_empty(size: int, *, pin_memory: bool, **options: Any) -> torch.Tensor:
        return pin(make(size, **options)) if pin_memory else make(size, **options)

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch, "empty", make_empty)
    with open_devices(machine, 1) as [device]:
        copies.filled(3, "pinned", device, seed=0)
        copies.empty(3, "pinned", device)
        assert pinned == []
        copies.filled(4, "pinned", None, seed=0)
        copies.empty(5, "pinned", None)
        copies.filled(6, "pageable", None, seed=0)
        copies.empty(6, "pageable", None)
    assert pinned == [4, 5]
