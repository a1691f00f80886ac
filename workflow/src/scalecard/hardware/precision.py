"""How float32 is computed on GPUs."""

import torch


def float32_is_float32() -> None:
    """cuDNN computes float32 convolutions in TF32 unless told otherwise, with 13 bits less of precision.

    So does cuBLAS with products if TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is set. Every result records both settings.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
