"""What CUDA, cuBLAS and cuDNN add to PyTorch; their switches hold for the whole process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from scalecard.hardware.vendors.nvidia.torch_gpu_check import refuse_unusable

__all__ = ["float32_is_float32", "lacks", "recorded", "refuse_unusable", "round_products", "switched"]

ROUNDED_PRODUCTS = (8, 0)  # the compute capability from which tensor cores take TF32 and bfloat16
WARM_UP = 3  # runs before CUDA records a graph, as its documentation has it


def lacks(what: str, device: torch.device) -> str:
    """What cards before Ampere lack; PyTorch would silently compute TF32 as float32."""
    if what not in ("tf32", "bf16", "bfloat16"):
        return ""
    found = torch.cuda.get_device_capability(device)
    if found >= ROUNDED_PRODUCTS:
        return ""
    return f"{what} needs compute capability 8.0, this GPU has {found[0]}.{found[1]}"


def round_products(*, tf32: bool) -> None:
    """In cuBLAS."""
    torch.backends.cuda.matmul.allow_tf32 = tf32


def float32_is_float32() -> None:
    """cuDNN computes float32 convolutions in TF32 unless told otherwise, with 13 bits less of precision.

    So does cuBLAS with products if TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is set. Every result records both settings.
    """
    _allow_tf32(products=False, convolutions=False)


@contextmanager
def switched(*, tf32: bool, benchmark: bool) -> Iterator[None]:
    """In cuBLAS and cuDNN."""
    products, convolutions = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    tried = torch.backends.cudnn.benchmark
    _allow_tf32(products=tf32, convolutions=tf32)
    torch.backends.cudnn.benchmark = benchmark
    try:
        yield
    finally:
        _allow_tf32(products=products, convolutions=convolutions)
        torch.backends.cudnn.benchmark = tried


def _allow_tf32(*, products: bool, convolutions: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = products, convolutions


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
