"""Puts the telemetry of records into words: next to a number, and for a whole experiment."""

import statistics
from collections.abc import Iterator, Sequence

from scalecard.analysis import formatting
from scalecard.analysis.sample_diagnostics import doubts
from scalecard.records.record import Record, Result
from scalecard.records.telemetry import HardwareState, Slowdown, Spread, Telemetry

NOTABLE_STEAL = 0.05


def remarks(record: Record) -> list[str]:
    """What a reader must know about this number; empty if all was well."""
    said = [remark for entry in record.telemetry for remark in _of_process(entry)]
    if record.launch_bound:
        said.append("bound by the launching thread, so no verdict on what it launched")
    if record.unit == "s":
        said += doubts(record.samples)
    return list(dict.fromkeys(said))


def _of_process(entry: Telemetry) -> Iterator[str]:
    if entry.measured_again:
        yield f"measured once more, after {entry.measured_again}"
    if entry.state is None:
        return
    for index, gpu in enumerate(entry.state.gpus):
        for reason, share in gpu.reasons.items():
            marked = "still " if reason in {*Slowdown} and entry.measured_again else ""
            yield f"GPU {index}: {marked}{reason} in {formatting.percent(share)} of the readings"
        if gpu.others_memory_bytes:
            yield f"GPU {index}: other processes used {formatting.count_bytes(gpu.others_memory_bytes)} of its memory"
    if (entry.state.steal or 0) > NOTABLE_STEAL:
        yield f"the hypervisor took {formatting.percent(entry.state.steal or 0)} of the CPU's time"


def energy(record: Record) -> str:
    """Joules per call by the GPUs' own counters, or ''."""
    joules = [entry.joules for entry in record.telemetry if entry.joules]
    return f"{statistics.median(joules):.3g} J" if joules else ""


def overview(result: Result) -> list[tuple[str, str]]:
    """(fact, range) pairs over everything that was timed in this experiment."""
    states = [entry.state for record in result.records for entry in record.telemetry if entry.state]
    if not states:
        return []
    rows = [(f"GPU {index} {label}", text) for index, label, text in _gpus(states)]
    rows.append(("highest load average", f"{max(state.load_average for state in states):.1f}"))
    shares = {
        "CPU busy": [state.cpu_busy for state in states],
        "CPU time taken by the hypervisor": [state.steal for state in states],
    }
    for label, values in shares.items():
        known = [value for value in values if value is not None]
        if known:
            rows.append((label, f"{formatting.percent(min(known))} to {formatting.percent(max(known))}"))
    rows.append(("CPU frequency", _range([state.cpu_mhz for state in states], "MHz") or _reason(states)))
    cost = max(state.sampler_cost for state in states)
    return [*rows, ("cost of these readings", f"at most {formatting.percent(cost, 2)} of a core")]


def _gpus(states: Sequence[HardwareState]) -> Iterator[tuple[int, str, str]]:
    """(GPU, fact, range)."""
    for index in range(max(len(state.gpus) for state in states)):
        gpus = [state.gpus[index] for state in states if index < len(state.gpus)]
        ranges = {
            "SM clock": _range([gpu.sm_clock_mhz for gpu in gpus], "MHz"),
            "temperature": _range([gpu.temperature_c for gpu in gpus], "°C"),
            "power": _range([gpu.power_w for gpu in gpus], "W"),
        }
        for label, text in ranges.items():
            yield index, label, text or "not reported by this GPU"


def _range(spreads: Sequence[Spread | None], unit: str) -> str:
    known = [spread for spread in spreads if spread]
    return f"{min(s.low for s in known):.0f} to {max(s.high for s in known):.0f} {unit}" if known else ""


def _reason(states: Sequence[HardwareState]) -> str:
    return next((f"not known ({s.missing['cpu_mhz']})" for s in states if "cpu_mhz" in s.missing), "not known")
