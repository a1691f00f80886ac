"""Benchmarks of the machine alone: products, copies, memory, storage, collectives."""
