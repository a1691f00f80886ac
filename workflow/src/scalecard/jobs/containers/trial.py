"""Whether an image works here: its container starts at all, and sees the host's GPUs."""

import subprocess
from pathlib import Path

from scalecard.hardware import lock
from scalecard.jobs.containers import launch
from scalecard.jobs.containers.marker import Marker

SEES_GPUS = (
    "import torch; count = torch.cuda.device_count(); assert count, 'PyTorch sees no GPU in the image';"
    " [torch.ones(1, device=f'cuda:{i}').add_(1).item() for i in range(count)]"
)
OTHERWISE = "container: {engine: none} runs in the host's environment"


class Unusable(ValueError):
    """The engine answers and has the image, but no container of it can be used here; the message says why."""


def refuse_unusable(made: Marker) -> None:
    """Start a container, then one with the host's GPUs, if it has any. Unusable says which of the two failed."""
    if made.engine == "none":
        return
    lock.lock_file()
    where = f"container.engine = {made.engine}"
    if reason := _why_not(made, "pass", gpus=False):
        raise Unusable(f"{where}: it does not start a container ({reason}). {OTHERWISE}")
    if launch.has_gpus() and (reason := _why_not(made, SEES_GPUS, gpus=True)):
        raise Unusable(
            f"{where}: it starts containers, but does not pass the GPUs on ({reason}). Install the NVIDIA container"
            f" toolkit (for Podman, and for Docker with CDI, also run `nvidia-ctk cdi generate`). {OTHERWISE}"
        )


def _why_not(made: Marker, code: str, *, gpus: bool) -> str:
    """The last line of what a Python program said that failed in the image; empty if it did not."""
    trial = launch.call(made, ["python", "-c", code], project=Path.cwd(), writable=[], gpus=gpus)
    done = subprocess.run(trial.argv, env=trial.environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
