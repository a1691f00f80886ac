"""Is every part of a machine as it should be? From the records of `health` to verdicts, alerts and advice."""
