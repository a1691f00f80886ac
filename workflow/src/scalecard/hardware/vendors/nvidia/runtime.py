"""What CUDA, cuBLAS and cuDNN add to PyTorch, for the whole process; and whether PyTorch can use the driver's GPUs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from scalecard.hardware.machine import Machine
from scalecard.hardware.vendors.nvidia import OWN_TORCH, nvml

ROUNDED_PRODUCTS = (8, 0)  # the compute capability from which tensor cores take TF32 and bfloat16
WARM_UP = 3  # runs before CUDA records a graph, as its documentation has it
NOT_READY = "system not yet initialized"  # cudaErrorSystemNotReady, 802
LEAST_SHARE = 0.8  # of the memory that the driver lists; it keeps a few percent for itself


def refuse_unusable(machine: Machine) -> None:
    """ValueError if PyTorch cannot compute on a GPU that the driver lists: an old card or driver, or none at all."""
    for index, name in enumerate(machine.gpus[: machine.num_devices]):
        try:
            torch.ones(1, device=f"cuda:{index}").add_(1).item()
        except (RuntimeError, AssertionError) as error:
            why = (str(error).splitlines() or ["no reason given"])[0].rstrip(".")
            built = ", ".join(torch.cuda.get_arch_list()) or "no GPU"
            raise ValueError(
                f"GPU {index} ({name}, driver {machine.driver}): PyTorch {torch.__version__}, built for {built},"
                f" cannot compute on it: {why}. {_advice(str(error))}"
            ) from error
    _refuse_others(machine)


def _advice(error: str) -> str:
    """What to do about an error of CUDA's first call."""
    if NOT_READY in error:
        return (
            "The NVSwitches wait for their fabric manager: start nvidia-fabricmanager of the driver's own version, on"
            " the host of a container (`systemctl enable --now nvidia-fabricmanager`, then look at its log)"
        )
    return f"Set CUDA_VISIBLE_DEVICES to GPUs that it can use, update the driver, or {OWN_TORCH}"


def _refuse_others(machine: Machine) -> None:
    """ValueError if CUDA enumerates other GPUs than NVML, or only a slice of a card."""
    with nvml.session() as gpus:
        sizes = [gpu.memory_bytes for gpu in gpus]
    for index, (name, size) in enumerate(zip(machine.gpus[: machine.num_devices], sizes, strict=False)):
        seen = torch.cuda.get_device_properties(index)
        same_name = name.startswith(seen.name) or seen.name.startswith(name)
        if same_name and seen.total_memory >= LEAST_SHARE * (size or 0):
            continue
        gib = [f"{(count or 0) / 2**30:.0f} GiB" for count in (size, seen.total_memory)]
        raise ValueError(
            f"GPU {index}: the driver lists {name} with {gib[0]}, but PyTorch would use {seen.name} with {gib[1]}: a"
            " slice of the card (MIG), or GPUs in another order. Set CUDA_DEVICE_ORDER=PCI_BUS_ID, and"
            " CUDA_VISIBLE_DEVICES to the UUIDs of what to measure (`nvidia-smi -L`)"
        )


def lacks(what: str, device: torch.device) -> str:
    """What cards before Ampere lack; PyTorch would silently compute TF32 as float32."""
    if what not in ("tf32", "bf16", "bfloat16"):
        return ""
    found = torch.cuda.get_device_capability(device)
    if found >= ROUNDED_PRODUCTS:
        return ""
    return f"{what} needs compute capability 8.0, this GPU has {found[0]}.{found[1]}"


def allow_tf32(*, allowed: bool) -> None:
    """cuDNN computes float32 convolutions in TF32 unless told otherwise, with 13 bits less of precision.

    So does cuBLAS with products if TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is set. Every result records both settings.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


@contextmanager
def switched(*, tf32: bool, benchmark: bool) -> Iterator[None]:
    """In cuBLAS and cuDNN."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    allow_tf32(allowed=tf32)
    torch.backends.cudnn.benchmark = benchmark
    try:
        yield
    finally:
        products, convolutions, tried = before
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = products, convolutions
        torch.backends.cudnn.benchmark = tried


def recorded(work: Callable[[], None], warm_up: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The warm-up runs on another stream; in it libraries choose kernels and allocate workspaces."""
    here, beside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    beside.wait_stream(here)
    with torch.cuda.stream(beside):
        for _ in range(WARM_UP):
            warm_up()
    here.wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Callable[[], None] = graph.replay
    return replay
