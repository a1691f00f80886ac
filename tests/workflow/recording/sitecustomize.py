"""On PYTHONPATH: each process that measures writes which files of the package it has loaded, when it ends."""

import atexit
import json
import multiprocessing
import os
import sys
from pathlib import Path


def _write() -> None:
    if "scalecard.run" in sys.modules and multiprocessing.parent_process():
        files = [module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "scalecard"]
        Path(os.environ["LOADED"], f"{sys.argv[2]}-{os.getpid()}.json").write_text(json.dumps(files))


atexit.register(_write)
