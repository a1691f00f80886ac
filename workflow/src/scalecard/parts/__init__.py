"""Pieces of work that use one part of the machine, each proven and counted."""
