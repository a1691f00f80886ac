"""How long does work take, and how long does launching it take?

Each device multiplies matrices and keeps every result. The clock is stopped once without waiting (the enqueue time)
and once after waiting for the device. Then all devices work one after the other, and all at once.

The answer would be wrong if the clock stopped before every device was done (each is waited for), if the first call's
start-up were counted (it is warmed up), or if TF32 were on when float32 is claimed (it is set for each dtype).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from annotated_types import Len
from torch import Tensor

from scalecard import progress
from scalecard.hardware.devices import Device, device_counts, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.proof import proven
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.spec import Common, Dtype, EachOnce, Positive, Sweep
from scalecard.measuring.variant import Variant
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
        work = partial(device.submit, _multiply, _matrix(device, size, dtype, spec.seed), spec.products, dtype)
        checks = [_check(device, dtype, spec.seed)]
        variants.append(Variant(name=f"{dtype} {size}", case=case, work=work, checks=checks))
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
        used = devices[:count]
        inputs = [_matrix(device, spec.size, "float32", spec.seed) for device in used]
        case = {"devices": count, "dtype": "float32", "size": spec.size, "products": spec.products}
        variants = [
            Variant(name=mode, case={"mode": mode, **case}, work=partial(work, spec, used, inputs))
            for mode, work in {"serial": _serial, "concurrent": _concurrent}.items()
        ]
        for timing in time_rounds(variants, devices=used, rule=spec.measure):
            yield timing.record()


def _serial(spec: Spec, devices: Sequence[Device], inputs: Sequence[Tensor]) -> None:
    for device, x in zip(devices, inputs, strict=True):
        device.submit(_multiply, x, spec.products, "float32")
        device.synchronize()


def _concurrent(spec: Spec, devices: Sequence[Device], inputs: Sequence[Tensor]) -> list[object]:
    return [d.submit(_multiply, x, spec.products, "float32") for d, x in zip(devices, inputs, strict=True)]


def _matrix(device: Device, size: int, dtype: str, seed: int) -> Tensor:
    x = torch.rand(size, size, generator=torch.Generator().manual_seed(seed))
    return x.to(device.torch, torch.bfloat16 if dtype == "bfloat16" else torch.float32)


def _multiply(x: Tensor, products: int, dtype: str) -> list[Tensor]:
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    return [x @ x for _ in range(products)]


def _check(device: Device, dtype: str, seed: int) -> Check:
    x = _matrix(device, 256, dtype, seed)
    (product,) = device.call(_multiply, x, 1, dtype)
    exact = x.double() @ x.double()
    error = float((product.double() - exact).norm() / exact.norm())
    return proven(f"product against float64 ({dtype}, relative)", error, TOLERANCE[dtype])
