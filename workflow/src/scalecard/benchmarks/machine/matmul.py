"""Matrix products, which use a device's arithmetic units: `products` times x @ x, each device with its own matrix."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from scalecard.hardware.devices import Device, Task
from scalecard.hardware.vendors.runtimes import runtime_of
from scalecard.measuring.case_variant import Subject
from scalecard.records.record import Check

TOLERANCE = {"float32": 1e-5, "tf32": 5e-3, "bfloat16": 2e-2}  # of a sum, relative to float64
SPREAD = 3  # times that of what a dtype's roundings add up to where their signs are random
COLUMNS = 128  # in a sum: one missing value changes it by 1 / sqrt(128) of the values' norm, which is more than allowed
ROWS = 1024  # in float64 at a time
SEED_OF_SIGNS = 0


@dataclass(frozen=True)
class Products:
    """What every device computes: `products` times x @ x, for a matrix x of size x size in this dtype."""

    size: int
    products: int
    dtype: str


def unsupported(dtype: str, device: Device) -> str:
    """Why this device does not support the dtype, or ''."""
    return runtime_of(device.torch).lacks(dtype, device.torch)


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

    return Subject(work=work, prove=prove, expected={"FLOPs": 2.0 * at.size**3 * at.products * len(devices)})


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
    runtime_of(x.device).allow_tf32(allowed=dtype == "tf32")
    return [x @ x for _ in range(products)]


def _checks(x: Tensor, results: list[Tensor], at: Products) -> Iterator[Check]:
    """Every product p against float64, in n^2 operations: p v = x (x v), for vectors v that are 0 but in 128 places.

    There they are 1, which loses no error of one sign, or random signs. What is wrong in 128 columns of a row is not
    seen if it adds up to nothing with both: with random signs at most half of the time, and never if it is one value.
    Source: Freivalds, Probabilistic Machines Can Use Less Running Time, IFIP Congress 1977.
    """
    signs = torch.randint(2, (at.size,), generator=torch.Generator().manual_seed(SEED_OF_SIGNS))
    signs = (2.0 * signs - 1).double().to(x.device)
    # Some rows at a time: a whole matrix of float64 may not fit beside what is measured.
    exact = [torch.cat([rows.double() @ sums for rows in x.split(ROWS)]) for sums in _sums(x, signs)]
    plain, _ = exact
    sizes = torch.tensor([len(part) for part in signs.split(COLUMNS)], device=x.device)
    worst = [0.0 if len(results) == at.products else math.inf] * 2
    for product in results:
        errors = [(ours - wanted).abs() for ours, wanted in zip(_sums(product, signs), exact, strict=True)]
        found = [float((error / norm).max()) for error, norm in zip(errors, (plain, plain / sizes.sqrt()), strict=True)]
        worst = [max(one, other) if math.isfinite(other) else math.inf for one, other in zip(worst, found, strict=True)]
    for signed, difference in zip(("", ", with random signs"), worst, strict=True):
        yield Check(
            name=f"{at.products} products against float64, sums of {COLUMNS} columns{signed}",
            dtype=at.dtype,
            difference=difference,
            tolerance=TOLERANCE[at.dtype] * (SPREAD if signed else 1),
        )


def _sums(matrix: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
    """Of each row, the sums of every 128 columns, and the same with signs, in float64."""
    plain, signed = [], []
    for columns, sign in zip(matrix.split(COLUMNS, dim=1), signs.split(COLUMNS), strict=True):
        values = columns.double()
        plain.append(values.sum(dim=1))
        signed.append(values @ sign)
    return torch.stack(plain, dim=1), torch.stack(signed, dim=1)
