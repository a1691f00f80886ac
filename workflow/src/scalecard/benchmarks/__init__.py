"""What the experiments time, built and proven."""
