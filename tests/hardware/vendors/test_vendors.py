"""Whose GPUs are measured: those of the first vendor that has some, or the CPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scalecard.hardware import vendors
from scalecard.hardware.environment import environment
from scalecard.hardware.machine import probe
from scalecard.hardware.vendors import CPU, Gloo, nvidia
from scalecard.hardware.vendors.runtimes import RUNTIMES, runtime_of
from support.fake_nvml import H100, FakeNvml, box

Install = Callable[..., FakeNvml]


@dataclass(frozen=True)
class Gpu:
    """A GPU of a vendor of its own, with a link to each neighbour."""

    number: int
    name: str = "Other 100"

    @property
    def uuid_hash(self) -> str:
        return f"other-{self.number}"

    def pci_address(self) -> str:
        return f"0000:0{self.number}:00.0"

    def facts(self, ask: Callable[..., Any]) -> dict[str, Any]:
        def silent() -> None:
            raise OSError("not told")

        return {"name": self.name, "ecc": ask("ecc", silent)}

    def common_ancestor(self, other: "Gpu") -> int:
        return 10 * abs(self.number - other.number)

    def far_ends(self) -> list[str]:
        return [f"0000:0{self.number + step}:00.0" for step in (-1, 1)]


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """The GPUs of a further vendor: none, until a test puts some there."""
    gpus = list[Gpu]()

    @contextmanager
    def session(missing: Any = None) -> Iterator[list[Gpu]]:
        yield gpus

    known = {"KIND": "other", "PACKAGES": {}, "driver_version": lambda: "7.1", "collectives": Gloo()}
    found = SimpleNamespace(**known, session=session, problems=lambda **_: ["of the other"], notes=lambda: ["unseen"])
    monkeypatch.setattr(vendors, "VENDORS", (nvidia, found, CPU))
    return gpus


def test_a_further_vendors_gpus_are_the_machine_and_its_environment(install_gpus: Install, other: list[Gpu]) -> None:
    install_gpus([])
    assert probe().kind == "cpu"
    other += [Gpu(1), Gpu(2)]
    found = probe()
    assert (found.kind, found.gpus, found.driver, found.num_devices) == ("other", ["Other 100"] * 2, "7.1", 2)
    assert not found.emulated
    facts = environment(found)
    assert [gpu["name"] for gpu in facts["gpus"]] == found.gpus
    assert facts["topology"] == [[None, 10], [10, None]]
    assert facts["nvlink_pairs"] == [[None, 1], [1, None]]
    assert facts["missing"]["gpus.1.ecc"] == "not told"


def test_of_two_vendors_the_first_one_is_measured(install_gpus: Install, other: list[Gpu]) -> None:
    other.append(Gpu(1))
    install_gpus(box(H100, 1))
    assert vendors.here() is nvidia
    assert probe().gpus == [H100.name]


def test_every_vendor_says_what_is_wrong_and_why_its_gpus_are_not_measured(
    install_gpus: Install, other: list[Gpu]
) -> None:
    install_gpus([])
    assert "of the other" in vendors.problems()
    with pytest.raises(ValueError, match="of the other"):
        vendors.refuse()
    assert "unseen" in vendors.notes()
    other.append(Gpu(1))
    assert vendors.notes() == [], "they are measured"


def test_every_vendor_has_a_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {vendor.KIND for vendor in vendors.VENDORS} == set(RUNTIMES)
    cpu = torch.device("cpu")
    assert runtime_of(cpu).lacks("bfloat16", cpu) == ""
    for instructions in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, instructions, lambda: False)
    assert "no instructions for bfloat16" in runtime_of(cpu).lacks("bf16", cpu)
    assert (runtime_of(cpu).recorded is None) == bool(runtime_of(cpu).lacks("graphs", cpu))
