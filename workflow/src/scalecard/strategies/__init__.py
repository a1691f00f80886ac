"""Every way to train a workload on several devices: built, proven and counted, ready to be timed."""
