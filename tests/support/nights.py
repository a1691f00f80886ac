"""Made-up nights of a platform: results whose times are chosen, kept one after another."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalecard.hardware.machine import Machine, from_facts
from scalecard.jobs.inputs import write_machine
from scalecard.records import files
from scalecard.records.record import Record, Result
from scalecard.report.kept_nights import Night, keep

from support.builders import timed

SPEC = {"size": 4, "sizes": [4]}


class Nights:
    """Writes results of `async_timing` under a root, each a day after the one before, and keeps them."""

    def __init__(self, root: Path, make_result: Callable[..., Result]) -> None:
        self.root, self._make, self._day, self.last = root, make_result, 0, make_result([step(1.0)])

    def folder(self, platform: str = "box") -> Path:
        return self.root / "results" / platform

    def measure(self, seconds: float | Record, platform: str = "box", **changes: Any) -> Path:
        """Write the platform's result. `machine` has changed facts; `environment` and `spec` are updated too."""
        self._day += 1
        record = seconds if isinstance(seconds, Record) else step(seconds, self._day)
        result = self._make([record], platform=platform, spec={**SPEC, **changes.pop("spec", {})})
        machine = replace(from_facts(result.environment["machine"]), **changes.pop("machine", {}))
        told = {"machine": vars(machine), "fingerprint": machine.fingerprint, "emulated": machine.emulated}
        finished = f"2026-{1 + self._day // 28:02}-{1 + self._day % 28:02}T02:10:00.500+00:00"
        self.last = replace(result, environment={**result.environment, **told, **changes}, finished=finished)
        path = self.folder(platform) / "async_timing.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        _describe(path.parent, machine)
        files.save(self.last, path)
        return path

    def keep(self, seconds: float | Record, platform: str = "box", **changes: Any) -> Night:
        """Measure and keep."""
        self.measure(seconds, platform, **changes)
        return keep(self.folder(platform))

    def keep_all(self, times: Sequence[float], **changes: Any) -> None:
        for seconds in times:
            self.keep(seconds, **changes)


def _describe(folder: Path, machine: Machine) -> None:
    if not (folder / "machine.json").exists():
        write_machine(folder / "machine.json", machine)


def step(seconds: float, night: int = 0, processes: int = 3) -> Record:
    """The same products in fresh processes, which differ by 0.1 %; 2 x 4^3 operations in `seconds`."""
    case: dict[str, Any] = {"mode": "single", "dtype": "float32", "size": 4, "products": 1, "devices": 1}
    runs = [[seconds * (1 + 0.001 * p + 0.0001 * i) for i in range(8)] for p in range(-1, processes - 1)]
    return timed(*runs, rounds_id=f"night {night}", **case)
