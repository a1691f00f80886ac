"""Pieces of work, each proven and counted: what uses one part of the machine, and what is a part of a model."""
