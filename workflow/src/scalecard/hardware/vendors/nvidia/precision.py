"""How float32 is computed on GPUs, and how cuDNN chooses its kernels: switches that hold for the whole process."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def float32_is_float32() -> None:
    """cuDNN computes float32 convolutions in TF32 unless told otherwise, with 13 bits less of precision.

    So does cuBLAS with products if TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is set. Every result records both settings.
    """
    _allow_tf32(products=False, convolutions=False)


@contextmanager
def switched(*, tf32: bool, benchmark: bool) -> Iterator[None]:
    """Meanwhile float32 is computed in TF32, and cuDNN tries its kernels for each new shape; then all is as before."""
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
