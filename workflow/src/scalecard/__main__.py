"""`python -m scalecard`."""

import os
import sys

from scalecard.cli.commands import main

if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # finalising PyTorch would take a second, for which the next experiment would wait
