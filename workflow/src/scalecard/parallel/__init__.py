"""The parallel strategies, without any timing: what is proven equal to the single device, and then timed."""
