"""One module an experiment, always of the same shape: a docstring, Spec, run(spec, machine), private helpers."""
