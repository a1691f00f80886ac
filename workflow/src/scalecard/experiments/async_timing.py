"""How long does work take, and how long does launching it take?

Each device multiplies matrices and keeps every result. The clock is stopped once without waiting (the enqueue time)
and once after waiting for the device. Then all devices work one after the other, and all at once.

The answer would be wrong if the clock stopped before every device was done (each is waited for), if the first call's
start-up were counted (it is warmed up), if TF32 were on when float32 is claimed (it is set for each dtype), or if a
product were left out (the results of the very call that is timed are compared, and its operations counted).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from scalecard import progress
from scalecard.benchmarks.machine.matmul import MODES, Products, subject, unsupported
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine, device_counts
from scalecard.measuring.case_variant import Variant
from scalecard.measuring.interleaved_timing import round_records, time_rounds
from scalecard.measuring.prepare import guarded, too_few_devices
from scalecard.measuring.spec import Common, Dtype, Positive, Several, Sweep
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.records.axes import Case
from scalecard.records.record import Record


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    size: Positive
    products: Positive
    dtypes: Several[Dtype]
    sizes: Sweep


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Enqueue and completion time over dtypes and sizes; then one device after the other against all at once."""
    with open_devices(machine) as devices:
        yield from guarded(_one_device(spec, devices[0]), {"mode": "single", "devices": 1})
        case: Case = {"mode": "concurrent", "devices": 2, "dtype": "float32", "size": spec.size}
        yield from too_few_devices(case, machine)
        counts = device_counts(len(devices))
        for count in in_equal_parts(counts, label=lambda count: f"{count} devices, serial and concurrent"):
            case = {"devices": count, "dtype": "float32", "size": spec.size, "products": spec.products}
            used, at = devices[:count], Products(spec.size, spec.products, "float32")
            variants = [
                Variant(
                    name=mode, case={"mode": mode, **case}, build=partial(subject, spec.seed, mode, used), timed_at=at
                )
                for mode in MODES
            ]
            yield from guarded(round_records(variants, devices=used, rule=spec.measure), case)


def _one_device(spec: Spec, device: Device) -> Iterator[Record]:
    wanted = dict.fromkeys([("float32", spec.size), *((d, spec.size) for d in spec.dtypes)])
    wanted |= dict.fromkeys(("float32", size) for size in spec.sizes)
    variants = []
    for dtype, size in wanted:
        case: Case = {"mode": "single", "devices": 1, "dtype": dtype, "size": size, "products": spec.products}
        note = unsupported(dtype, device)
        if note:
            yield Record.skipped(case, note)
            continue
        build, at = partial(subject, spec.seed, "concurrent", [device]), Products(size, spec.products, dtype)
        variants.append(Variant(name=f"{dtype} {size}", case=case, build=build, timed_at=at))
    progress.doing(f"one device: {', '.join(variant.name for variant in variants)}")
    for timing in time_rounds(variants, devices=[device], rule=spec.measure):
        yield timing.enqueue_record()
        yield timing.record()
