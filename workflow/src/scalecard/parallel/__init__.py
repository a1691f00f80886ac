"""How training is split. No clock here: what it computes is timed by others."""
