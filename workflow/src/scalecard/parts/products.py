"""Matrix products, which use a device's arithmetic units: `products` times x @ x, each device with its own matrix."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from scalecard.hardware.devices import Device, Task
from scalecard.hardware.machine import Machine
from scalecard.measuring.variant import Subject
from scalecard.records.record import Check

TOLERANCE = {"float32": 1e-5, "tf32": 5e-3, "bfloat16": 2e-2}  # relative to float64, whole matrix


@dataclass(frozen=True)
class Products:
    """What every device computes: `products` times x @ x, for a matrix x of size x size in this dtype."""

    size: int
    products: int
    dtype: str

    @property
    def flops(self) -> float:
        """2 n^3 per product."""
        return 2.0 * self.size**3 * self.products


def unsupported(dtype: str, machine: Machine, device: Device) -> str:
    """Why this device does not support the dtype, or ''. PyTorch would silently compute TF32 as float32."""
    if dtype == "tf32" and machine.emulated:
        return "TF32 exists on GPUs only"
    if dtype == "float32" or device.torch.type == "cpu":
        return ""
    found = torch.cuda.get_device_capability(device.torch)
    return "" if found >= (8, 0) else f"{dtype} needs compute capability 8.0, this GPU has {found[0]}.{found[1]}"


def subject(seed: int, mode: str, devices: Sequence[Device], at: Products) -> Subject:
    """The products of every device, by one of MODES."""
    inputs = [_matrix(device, at.size, at.dtype, seed + device.index) for device in devices]
    work = partial(MODES[mode], devices, inputs, at)

    def prove() -> Iterator[Check]:
        tasks = work()
        for device in devices:
            device.synchronize()
        for x, task in zip(inputs, tasks, strict=True):
            yield from _checks(x, task.result(), at)

    return Subject(work=work, prove=prove, expected={"FLOPs": at.flops * len(devices)})


def _serial(devices: Sequence[Device], inputs: Sequence[Tensor], at: Products) -> list[Task]:
    tasks = []
    for device, x in zip(devices, inputs, strict=True):
        tasks.append(device.submit(_multiply, x, at.products, at.dtype))
        device.synchronize()
    return tasks


def _concurrent(devices: Sequence[Device], inputs: Sequence[Tensor], at: Products) -> list[Task]:
    return [d.submit(_multiply, x, at.products, at.dtype) for d, x in zip(devices, inputs, strict=True)]


MODES: dict[str, Callable[..., list[Task]]] = {"serial": _serial, "concurrent": _concurrent}


def _matrix(device: Device, size: int, dtype: str, seed: int) -> Tensor:
    x = torch.rand(size, size, generator=torch.Generator().manual_seed(seed))
    return x.to(device.torch, torch.bfloat16 if dtype == "bfloat16" else torch.float32)


def _multiply(x: Tensor, products: int, dtype: str) -> list[Tensor]:
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    return [x @ x for _ in range(products)]


def _checks(x: Tensor, results: list[Tensor], at: Products) -> Iterator[Check]:
    """Every product against float64, relative to the whole matrix."""
    exact = x.double() @ x.double()
    errors = [float((product.double() - exact).norm() / exact.norm()) for product in results]
    yield Check(
        name=f"{at.products} products against float64, relative norm",
        dtype=at.dtype,
        difference=max(errors) if len(errors) == at.products and all(map(math.isfinite, errors)) else math.inf,
        tolerance=TOLERANCE[at.dtype],
    )
