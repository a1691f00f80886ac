"""ScaleCard: a report card for multi-GPU training on your own hardware."""

__version__ = "0.2.0"
