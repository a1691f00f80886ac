"""torch.compile as a step uses it: what is missing for it here, an empty cache, and proof that compiled code ran."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

COMPILERS = ("c++", "g++", "clang++")  # inductor builds C++ for CPUs, and Triton's launchers with a C compiler
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
MANY = 256  # versions of one piece of code: every combination of rungs is one, and beyond the limit dynamo gives up


def no_compiler() -> str:
    """Why torch.compile cannot work here, or ''."""
    named = os.environ.get("CXX", "")
    if any(shutil.which(name) for name in (named, *COMPILERS) if name):
        return ""
    return f"torch.compile needs a compiler, and none of {', '.join(COMPILERS)} is here"


@contextmanager
def empty_cache_of_code() -> Iterator[None]:
    """Everything is compiled anew meanwhile, into a temporary folder: a container's other folders are read-only."""
    before = {name: os.environ.get(name) for name in CACHES}
    with tempfile.TemporaryDirectory(prefix="scalecard-compiled-", ignore_cleanup_errors=True) as folder:
        os.environ.update({name: os.path.join(folder, name.lower()) for name in CACHES})
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                os.environ.update({} if value is None else {name: value})


class Compiled:
    """A function compiled by torch.compile for the shapes that it is called with; `runs` counts calls of its graphs.

    Where dynamo gives up, it runs the function as it is and says nothing: `runs` does not grow then.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._ran = _Counter()
        torch._dynamo.config.recompile_limit = MANY
        # Dynamo keeps a backend as long as the process lives: of this object, it would keep the function's model too.
        self._compiled = torch.compile(function, backend=partial(_graph, self._ran), dynamic=False)

    def __call__(self, *args: Any) -> Any:
        return self._compiled(*args)

    @property
    def runs(self) -> int:
        """How often a graph was called."""
        return self._ran.times


@dataclass
class _Counter:
    times: int = 0


def _graph(ran: _Counter, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    made = torch._dynamo.lookup_backend("inductor")(module, inputs)

    def run(*args: Any) -> Any:
        ran.times += 1
        return made(*args)

    return run
