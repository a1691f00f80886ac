"""How long does work take, and how long does launching it take?

Each device multiplies matrices and keeps every result. The clock is stopped once without waiting (the enqueue time)
and once after waiting for the device. Then all devices work one after the other, and all at once.

The answer would be wrong if the clock stopped before every device was done (each is waited for), if the first call's
start-up were counted (it is warmed up), if TF32 were on when float32 is claimed (it is set for each dtype), or if a
product were left out (the results of the very call that is timed are compared, and its operations counted).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from annotated_types import Len
from torch import Tensor

from scalecard import progress
from scalecard.hardware.counts import device_counts
from scalecard.hardware.devices import Device, Task, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, Dtype, EachOnce, Positive, Sweep
from scalecard.measuring.variant import Subject, Variant
from scalecard.records.record import Case, Check, Record

TOLERANCE = {"float32": 1e-5, "tf32": 5e-3, "bfloat16": 2e-2}  # relative to float64, whole matrix


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    size: Positive
    products: Positive
    dtypes: Annotated[tuple[Dtype, ...], Len(min_length=1), EachOnce]
    sizes: Sweep


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Enqueue and completion time over dtypes and sizes; then one device after the other against all at once."""
    with open_devices(machine) as devices:
        yield from _one_device(spec, machine, devices[0])
        yield from _all_devices(spec, devices)


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


def _one_device(spec: Spec, machine: Machine, device: Device) -> Iterator[Record]:
    wanted = dict.fromkeys([("float32", spec.size), *((d, spec.size) for d in spec.dtypes)])
    wanted |= dict.fromkeys(("float32", size) for size in spec.sizes)
    variants = []
    for dtype, size in wanted:
        case: Case = {"mode": "single", "devices": 1, "dtype": dtype, "size": size, "products": spec.products}
        note = _unsupported(dtype, machine, device)
        if note:
            yield Record.skipped(case, note)
            continue
        build, at = partial(_subject, spec.seed, "concurrent", [device]), Products(size, spec.products, dtype)
        variants.append(Variant(name=f"{dtype} {size}", case=case, build=build, timed_at=at))
    progress.doing(f"one device: {', '.join(variant.name for variant in variants)}")
    for timing in time_rounds(variants, devices=[device], rule=spec.measure):
        yield timing.enqueue_record()
        yield timing.record()


def _unsupported(dtype: str, machine: Machine, device: Device) -> str:
    """Why this device does not support the dtype, or ''. PyTorch would silently compute TF32 as float32."""
    if dtype == "tf32" and machine.emulated:
        return "TF32 exists on GPUs only"
    if dtype == "float32" or device.torch.type == "cpu":
        return ""
    found = torch.cuda.get_device_capability(device.torch)
    return "" if found >= (8, 0) else f"{dtype} needs compute capability 8.0, this GPU has {found[0]}.{found[1]}"


def _all_devices(spec: Spec, devices: Sequence[Device]) -> Iterator[Record]:
    if len(devices) == 1:
        case: Case = {"mode": "concurrent", "devices": 2, "dtype": "float32", "size": spec.size}
        yield Record.skipped(case, "needs 2 devices, this machine has 1")
    for count in progress.cases(device_counts(len(devices)), label=lambda n: f"{n} devices, serial and concurrent"):
        case = {"devices": count, "dtype": "float32", "size": spec.size, "products": spec.products}
        at = Products(spec.size, spec.products, "float32")
        variants = [
            Variant(
                name=mode,
                case={"mode": mode, **case},
                build=partial(_subject, spec.seed, mode, devices[:count]),
                timed_at=at,
            )
            for mode in MODES
        ]
        for timing in time_rounds(variants, devices=devices[:count], rule=spec.measure):
            yield timing.record()


def _subject(seed: int, mode: str, devices: Sequence[Device], at: Products) -> Subject:
    """The products of every device, each with a matrix of its own."""
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


MODES = {"serial": _serial, "concurrent": _concurrent}


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
