"""A step as a trace for Chrome or Perfetto."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from scalecard import progress

if TYPE_CHECKING:  # what starts the processes that measure says where traces go, and imports no PyTorch
    from scalecard.measuring.case_variant import Work
    from scalecard.measuring.timer import Bench

FOLDER = "SCALECARD_TRACES"  # inherited by the processes that measure


def begin_traces(folder: Path) -> None:
    """Traces go to this folder; those of an earlier run are removed, because they are not of what is measured now."""
    shutil.rmtree(folder, ignore_errors=True)
    os.environ[FOLDER] = str(folder.resolve())
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's library would say when it starts and stops


def trace(name: str, work: "Work", bench: "Bench") -> None:
    """Call the work once on every rank, and keep what the leading one did.

    Whatever goes wrong is said, and stops nothing: the times were taken before, and are more than a trace. But if one
    of several ranks cannot take its step, the others wait for it until the launch is lost.
    """
    import torch
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile

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
