"""How long a step takes where it was not measured."""
