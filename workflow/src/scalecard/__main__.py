"""`python -m scalecard`."""

import sys

from scalecard.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
