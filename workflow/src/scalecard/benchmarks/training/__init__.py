"""Benchmarks of training: the strategies, in one process and on ranks, and what they are made of."""
