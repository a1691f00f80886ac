"""NVIDIA: facts and state through NVML, what CUDA adds to PyTorch, and the ways that NCCL sends."""
