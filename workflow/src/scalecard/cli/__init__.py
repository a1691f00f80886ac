"""The `scalecard` command: its arguments, and what it prints."""
