"""The container that experiments run in: its image is built, and commands are launched in what an engine starts."""
