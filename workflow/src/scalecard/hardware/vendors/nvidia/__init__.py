"""NVIDIA: facts and state through NVML, what CUDA adds to PyTorch, and NCCL (nccl.py)."""

from scalecard.hardware.vendors.nvidia import nccl as collectives
from scalecard.hardware.vendors.nvidia.gpu_problems import PACKAGES, notes, problems
from scalecard.hardware.vendors.nvidia.nvml import counting_faults, driver_version, session

__all__ = ["KIND", "PACKAGES", "collectives", "counting_faults", "driver_version", "notes", "problems", "session"]

KIND = "cuda"
