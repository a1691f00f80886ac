"""Ranks and nodes: who takes part in a launch, where they meet, and what is recorded if one of them is lost."""
