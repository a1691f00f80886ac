"""torch.compile as a step uses it: what is missing for it here, an empty cache of the ranks, and whether code ran."""

import fcntl
import os
import shlex
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scalecard.distributed.context import RankContext
from scalecard.hardware import host
from scalecard.time_spent import Activity, spent_on

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
MOST_WORKERS = 32  # of one process, as inductor has it
MANY = 256  # versions of one piece of code: every combination of rungs is one, and beyond the limit dynamo gives up


def no_compiler(device: torch.device) -> str:
    """Why torch.compile cannot work on this device, or ''.

    Triton builds what starts its kernels in C, and inductor builds kernels for CPUs in C++; both include Python's
    headers. Sources: triton/runtime/build.py; torch/_inductor/config.py (cpp.cxx), codecache.py.
    """
    variable, names = ("CXX", ("g++",)) if device.type == "cpu" else ("CC", ("gcc", "clang"))
    given = shlex.split(os.environ.get(variable, ""))
    wanted = given[:1] or names
    if not any(shutil.which(name) for name in wanted):
        return f"torch.compile needs a compiler, and {' or '.join(wanted)} is not here"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return "" if headers.exists() else "torch.compile needs Python's headers, and Python.h is not here"


@contextmanager
def empty_cache_of_code(ctx: RankContext) -> Iterator[None]:
    """Everything is compiled anew meanwhile, into a temporary folder: a container's other folders are read-only.

    The ranks, which are on one node, share the folder and the cores. Of each graph of a forward the first that comes
    makes the code, and the others find its kernels there.
    """
    global _turns
    before = {name: os.environ.get(name) for name in CACHES}
    make = partial(tempfile.TemporaryDirectory, prefix="scalecard-compiled-", ignore_cleanup_errors=True)
    with make() if ctx.leads else nullcontext("") as made:
        folder = Path(ctx.all_gather(made)[0])
        os.environ.update({name: str(folder / name.lower()) for name in CACHES})
        _turns = _Turns(folder, max(1, min(MOST_WORKERS, host.usable_cores() // ctx.world_size)))
        try:
            yield
            ctx.barrier()  # nobody needs the folder any more
        finally:
            _turns = None
            for name, value in before.items():
                os.environ.pop(name, None)
                os.environ.update({} if value is None else {name: value})


class _Turns:
    """Lets one rank at a time compile a graph that no other has compiled yet, by a lock that a killed rank gives up."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder, self._workers, self._graphs = folder, workers, 0

    @contextmanager
    def next(self) -> Iterator[None]:
        """Alone with the next graph of this rank or, if another rank has compiled its own, beside others."""
        torch._inductor.config.compile_threads = self._workers  # held per thread, like dynamo's settings
        self._graphs += 1
        done = self._folder / f"graph-{self._graphs}"
        with ExitStack() as held:
            lock = held.enter_context((self._folder / "lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            if done.exists():
                held.close()
            yield
            done.touch()


_turns: _Turns | None = None


class Compiled:
    """A function compiled by torch.compile for the shapes that it is called with.

    Where dynamo gives up, it runs the function as it is and says nothing; `plain_calls` counts such calls.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._ran = _Counter()
        # Dynamo keeps a backend as long as the process lives: of this object, it would keep the function's model too.
        self._compiled = torch.compile(function, backend=partial(_graph, self._ran), dynamic=False)
        self.plain_calls = 0

    def __call__(self, *args: Any) -> Any:
        if torch._dynamo.config.recompile_limit != MANY:  # dynamo's settings are held per thread
            torch._dynamo.config.recompile_limit = MANY
        before = self._ran.times
        result = self._compiled(*args)
        self.plain_calls += self._ran.times == before
        return result


@dataclass
class _Counter:
    times: int = 0


def _graph(ran: _Counter, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    with spent_on(Activity.COMPILATION), _turns.next() if _turns else nullcontext():
        made = torch._dynamo.lookup_backend("inductor")(module, inputs)

    def run(*args: Any) -> Any:
        ran.times += 1
        return made(*args)

    return run
