"""One call of a work as a trace for Chrome or Perfetto (ui.perfetto.dev). It is never timed: tracing slows it down."""

import os
import re
import shutil
from pathlib import Path

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from scalecard import progress
from scalecard.measuring.bench import Bench
from scalecard.measuring.variant import Work

FOLDER = "SCALECARD_TRACES"  # inherited by the processes that measure


def begin(folder: Path) -> None:
    """Traces go to this folder; those of an earlier run are removed, because they are not of what is measured now."""
    shutil.rmtree(folder, ignore_errors=True)
    os.environ[FOLDER] = str(folder.resolve())
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's library would say when it starts and stops


def trace(name: str, work: Work, bench: Bench) -> None:
    """Call the work once on every rank, and keep what the leading one did.

    What cannot be written is said, and stops nothing.
    """
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    every_thread = _ExperimentalConfig(profile_all_threads=True)  # CPU workers are threads
    bench.synchronize()
    bench.ranks.barrier()
    with profile(activities=kinds, experimental_config=every_thread) as profiler:
        work()
        bench.synchronize()
    folder = os.environ.get(FOLDER)
    if not (bench.ranks.leads and folder):
        return
    path = Path(folder, f"{re.sub('[^A-Za-z0-9.]+', '-', name)}.json.gz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}")  # which still ends with .gz, or it would not be compressed
        profiler.export_chrome_trace(str(unfinished))
        unfinished.replace(path)
    except (OSError, RuntimeError) as error:
        progress.say(f"warning: {path.name} was not written: {error}")
