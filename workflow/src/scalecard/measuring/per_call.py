"""What one call takes besides time: joules, the peak of each device's memory, and a trace for Chrome or Perfetto.

Many counters move only about every 100 ms, so less than a second is not a measurement. Source: Yang, Adamek, Armour,
Part-time Power Measurements (2024), arXiv:2312.02741.
"""

import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from urllib.parse import quote_plus

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from scalecard import progress
from scalecard.measuring.case_variant import Timing, Variant, Work
from scalecard.measuring.failures import caught, guarded
from scalecard.measuring.telemetry import Watch
from scalecard.measuring.timer import Bench
from scalecard.records.record import Record

WINDOW = 1.0  # seconds
NO_COUNTER = "no counter on every GPU"
OTHER_NODES = "the GPUs of other nodes are not seen from here"
TOO_SHORT = f"took less than the {WINDOW:g} s that the GPUs' counters need"
FOLDER = "SCALECARD_TRACES"  # inherited by the processes that measure


class Meter:
    """The counters before and after a window; which ranks can read them is agreed upon once."""

    def __init__(self, bench: Bench, watch: Watch | None) -> None:
        self._bench, self._watch = bench, watch
        (counted,) = bench.ranks.maximum([float(watch is not None and watch.energy() is not None)])
        self.reason = OTHER_NODES if bench.ranks.spans_nodes else "" if counted else NO_COUNTER

    def add(self, timing: Timing, run: Callable[[], float], calls: int) -> None:
        """Run a window of so many calls, which returns its seconds, and add its joules to the timing."""
        before = self._joules()
        seconds = run()
        after = self._joules()
        timing.no_joules = self.reason or ("" if seconds >= WINDOW else TOO_SHORT)
        if not timing.no_joules and before is not None and after is not None:
            timing.joules = (timing.joules or 0.0) + after - before
            timing.metered += calls

    def pass_over(self, timing: Timing) -> None:
        """A window for this alone, once its samples say how many calls that takes; the same number on every rank."""
        timing.no_joules = self.reason
        if self.reason or timing.failure or not timing.prepared:
            return
        calls, work = math.ceil(1.1 * WINDOW / median(timing.completion)), timing.prepared.call
        with caught(on_failure=timing.fail, alone=self._bench.ranks.alone):
            self.add(timing, lambda: calls * self._bench.block(work, calls).completion, calls)

    def _joules(self) -> float | None:
        return None if self.reason or not self._watch else self._watch.energy()


def peak_memory(timings: Iterable[Timing], *, workload: str) -> Iterator[Record]:
    """One record per variant and device: the most bytes one call needs there beyond what was allocated before it.

    Parameters and inputs are allocated before; activations, gradients and buffers are not. Variants without devices are
    left out. On CPUs there is a single skipped record, for the model.
    """
    for timing in timings:
        variant = timing.variant
        if not variant.devices or not timing.prepared:
            continue
        if variant.devices[0].torch.type == "cpu":
            note = "CPU workers share the host's memory: there is no peak per device"
            yield Record.skipped({"workload": workload}, note, metric="peak_memory", unit="B")
            return
        yield from guarded(_peaks(variant, timing.prepared.subject.work), variant.case, metric="peak_memory", unit="B")


def _peaks(variant: Variant, work: Work) -> Iterator[Record]:
    used = {device.index: device for device in variant.devices}.values()
    before = {}
    for device in used:
        device.synchronize()
        before[device.index] = torch.accelerator.memory_allocated(device.torch)
        torch.accelerator.reset_peak_memory_stats(device.torch)
    work()
    for device in used:
        device.synchronize()
        peak = float(torch.accelerator.max_memory_allocated(device.torch) - before[device.index])
        case = {**variant.case, "device": device.index}
        yield Record(case=case, metric="peak_memory", unit="B", samples=[[peak]])


def begin_traces(folder: Path) -> None:
    """Traces go to this folder; those of an earlier run are removed, because they are not of what is measured now."""
    shutil.rmtree(folder, ignore_errors=True)
    os.environ[FOLDER] = str(folder.resolve())
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's library would say when it starts and stops


def trace(name: str, work: Work, bench: Bench) -> None:
    """Call the work once on every rank, and keep what the leading one did.

    Whatever goes wrong is said, and stops nothing: the times were taken before, and are more than a trace. But if one
    of several ranks cannot take its step, the others wait for it until the launch is lost.
    """
    bench.synchronize()
    bench.ranks.barrier()
    file = f"{quote_plus(name)}.json.gz"  # from which the report has the name
    folder = os.environ.get(FOLDER) if bench.ranks.leads else None
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.accelerator.is_available() else [])]
    every_thread = _ExperimentalConfig(profile_all_threads=True)  # CPU workers are threads
    try:
        with profile(activities=kinds, experimental_config=every_thread) as profiler:
            work()
            bench.synchronize()
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            unfinished = Path(folder, f".{file}")  # which still ends with .gz, or it would not be compressed
            profiler.export_chrome_trace(str(unfinished))
            unfinished.replace(Path(folder, file))
    except Exception as error:  # of the memory that a profiler takes as well, of the profiler, of the disk
        progress.say(f"warning: {file} was not written: {error}")
