"""Which strategy to use, and which to avoid."""
