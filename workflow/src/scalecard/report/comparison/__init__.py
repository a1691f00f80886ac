"""Two sets of results side by side, case by case: where to find them, the verdicts, and their views."""
