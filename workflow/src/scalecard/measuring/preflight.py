"""Is anybody else using this machine? If so, that is a warning or, with `strict`, an error before measuring.

What may end a measurement is a warning too.
"""

from scalecard.hardware import host, isolation, vendors
from scalecard.hardware.vendors.protocol import Gpu

BUSY_GPU = 0.05  # share of the driver's window in which a kernel ran
BUSY_CPU = 1 / 3  # of the cores
LOOK = 1.0  # seconds for which the CPU is watched
# What NVIDIA gives to containers in which NCCL runs (--shm-size=1g). A container without that has 64 MiB.
SHARED_MEMORY = 2**30


class Disturbed(ValueError):
    """Something else is using the machine, and config.yaml says `strict: true`."""


def disturbances(cores: int) -> list[str]:
    """What will disturb the measurement, in words. None of our own work runs yet."""
    with vendors.session() as gpus:
        found = [words for index, gpu in enumerate(gpus) for words in _on_gpu(index, gpu)]
    busy = host.cores_busy(LOOK)
    if busy > cores * BUSY_CPU:
        found.append(f"other programs kept {busy:.1f} of {cores} cores busy before the measurement")
    return found


def _on_gpu(index: int, gpu: Gpu) -> list[str]:
    others, used = gpu.num_others(isolation.is_ours), gpu.utilisation
    found = []
    if others:
        memory = gpu.state(isolation.is_ours)["others_memory_bytes"] or 0
        what = "another process" if others == 1 else f"{others} other processes"
        found.append(f"{what} used GPU {index} before the measurement ({memory / 2**20:.0f} MiB of its memory)")
    if used is not None and used > BUSY_GPU:
        found.append(f"GPU {index} was {100 * used:.0f} % busy before the measurement")
    if gpu.admits_one_process:
        found.append(
            f"GPU {index} allows one process at a time, so ranks may fail: `nvidia-smi -c DEFAULT` allows more"
        )
    return found


def check(cores: int, *, strict: bool) -> list[str]:
    """Return the disturbances, who draws a desktop, why a GPU is not used, and whether shared memory is too small.

    Raise Disturbed if anything disturbs and `strict` is set.
    """
    found = disturbances(cores)
    if found and strict:
        raise Disturbed(f"not measured, because strict = true in config.yaml: {'; '.join(found)}")
    return [*found, *_displays(), *vendors.notes(), *_shared_memory()]


def _shared_memory() -> list[str]:
    """NCCL's ranks and a DataLoader's workers exchange data there, and die if it is full."""
    free = host.free_shared_memory()
    if free is None or free >= SHARED_MEMORY:
        return []
    return [
        f"/dev/shm has {free / 2**20:.0f} MiB free, but NCCL and DataLoader's workers need {SHARED_MEMORY / 2**30:.0f}"
        " GiB and may fail without a reason (bus error): start the container with --shm-size=1g or more; in a pod,"
        " mount an emptyDir with medium: Memory there"
    ]


def _displays() -> list[str]:
    """A desktop is drawn by the GPU: worth knowing, and no reason to refuse."""
    with vendors.session() as gpus:
        return [
            f"{name}, a display server, used GPU {index} before the measurement ({used / 2**20:.0f} MiB of its memory)"
            for index, gpu in enumerate(gpus)
            for name, used in gpu.display_servers().items()
        ]
