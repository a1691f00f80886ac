"""How time, memory and the state of the hardware are measured, and what must be proven first."""
