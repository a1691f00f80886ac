"""The GPUs of each vendor: what its driver says of them, and what PyTorch does not offer for all of them alike."""
