"""The machine itself: what it is, what state it is in, who else uses it, and the devices that work is submitted to."""
