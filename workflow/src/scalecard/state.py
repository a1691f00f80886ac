"""What the telemetry of records says, in words: beside a number, and over a whole experiment. No torch here."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from scalecard import units
from scalecard.nvml import SLOWDOWNS
from scalecard.schema import Record, Result

NOTABLE_STEAL = 0.05


def remarks(record: Record) -> list[str]:
    """What a reader must know beside this number; nothing where all was well."""
    said = [remark for entry in record.telemetry for remark in _of_process(entry)]
    if record.unit == "s":
        said += record.doubts
    return list(dict.fromkeys(said))


def _of_process(entry: dict[str, Any]) -> Iterator[str]:
    if entry.get("measured_again"):
        yield f"measured once more, after {entry['measured_again']}"
    for index, gpu in enumerate(entry.get("gpus", [])):
        for reason, share in gpu["reasons"].items():
            marked = "still " if reason in SLOWDOWNS.values() and entry.get("measured_again") else ""
            yield f"GPU {index}: {marked}{reason} in {units.percent(share)} of the looks"
        if gpu["others_memory_bytes"]:
            yield f"GPU {index}: other processes held {units.count_bytes(gpu['others_memory_bytes'])} of its memory"
    if (entry.get("steal") or 0) > NOTABLE_STEAL:
        yield f"the hypervisor took {units.percent(entry['steal'])} of the CPU's time"


def energy(record: Record) -> str:
    """Joules a call by the GPUs' own counters, or nothing."""
    joules = [entry["joules"] for entry in record.telemetry if entry.get("joules")]
    return f"{statistics.median(joules):.3g} J" if joules else ""


def overview(result: Result) -> list[tuple[str, str]]:
    """(fact, its range) over all that was timed in this experiment."""
    entries = [entry for record in result.records for entry in record.telemetry if "seconds" in entry]
    if not entries:
        return []
    rows = [(f"GPU {index} {label}", text) for index, label, text in _gpus(entries)]
    rows.append(("highest load average", f"{max(entry['load_average'] for entry in entries):.1f}"))
    for label, key in (("CPU busy", "cpu_busy"), ("CPU time taken by the hypervisor", "steal")):
        known = [entry[key] for entry in entries if entry[key] is not None]
        if known:
            rows.append((label, f"{units.percent(min(known))} to {units.percent(max(known))}"))
    rows.append(("CPU frequency", _range([entry["cpu_mhz"] for entry in entries], "MHz") or _reason(entries)))
    rows.append(("cost of looking", f"at most {max(entry['sampler_cost'] for entry in entries):.2%} of a core"))
    return [(label, text.replace("%", " %").replace("  %", " %")) for label, text in rows]


def _gpus(entries: Sequence[dict[str, Any]]) -> Iterator[tuple[int, str, str]]:
    units = {"sm_clock_mhz": ("SM clock", "MHz"), "temperature_c": ("temperature", "°C"), "power_w": ("power", "W")}
    for index in range(max(len(entry["gpus"]) for entry in entries)):
        for key, (label, unit) in units.items():
            text = _range([entry["gpus"][index][key] for entry in entries if index < len(entry["gpus"])], unit)
            yield index, label, text or "not given by this GPU"


def _range(spreads: Sequence[Sequence[float] | None], unit: str) -> str:
    known = [value for spread in spreads if spread for value in spread]
    return f"{min(known):.0f} to {max(known):.0f} {unit}" if known else ""


def _reason(entries: Sequence[dict[str, Any]]) -> str:
    return next((f"not known ({e['missing']['cpu_mhz']})" for e in entries if "cpu_mhz" in e["missing"]), "not known")
