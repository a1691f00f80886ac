"""How far training scales: a model of a step on any number of devices, fitted to measured parts, with its error."""
