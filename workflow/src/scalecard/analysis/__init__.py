"""From results to typed facts. No torch here, and no plots."""

MARGIN_OF_RUNS = 0.02  # the largest difference between two runs that is ignored unless another one is asked for
