"""What to use: from the times of every strategy to one that is recommended, with what speaks against the others."""
