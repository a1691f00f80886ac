"""Whether the machine does what its vendor says and what its own parts do."""
