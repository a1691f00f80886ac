"""NVIDIA: facts and state through NVML, what CUDA adds to PyTorch, and the ways that NCCL sends."""

import os

from scalecard.hardware.vendors.nvidia.gpu_problems import PACKAGES, notes, problems
from scalecard.hardware.vendors.nvidia.nvml import counting_faults, driver_version, session

__all__ = ["KIND", "PACKAGES", "counting_faults", "driver_version", "notes", "problems", "process_group", "session"]

KIND = "cuda"


def process_group() -> str:
    """Of the two for NCCL, since PyTorch 2.15 the second, unless this says otherwise."""
    return "ProcessGroupNCCL" if os.environ.get("TORCH_DIST_USE_NCCL2") == "0" else "ProcessGroupNCCL2"
