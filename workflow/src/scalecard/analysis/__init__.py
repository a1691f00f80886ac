"""From results to typed facts. No torch here, and no plots."""
