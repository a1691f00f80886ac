"""Two platforms, or one before and after, compared case by case."""
