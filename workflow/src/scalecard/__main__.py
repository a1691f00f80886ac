"""`python -m scalecard`."""

import os
import sys

from scalecard.cli.commands import main

if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # Python would take PyTorch apart for a second, and the next experiment wait for it
