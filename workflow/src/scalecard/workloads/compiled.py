"""torch.compile of a step or of blocks: what is missing for it here, an empty cache of code, and whether code ran."""

import fcntl
import functools
import os
import shlex
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scalecard.distributed.context import RankContext
from scalecard.hardware import devices, host, isolation
from scalecard.time_spent import Activity, spent_on
from scalecard.workloads.recipe import Checkpointing, change_forward, checkpointed

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

    The ranks of a node share the folder and the cores. Of each graph of a forward the first that comes
    makes the code, and the others find its kernels there.
    """
    global _turns
    make = partial(tempfile.TemporaryDirectory, prefix="scalecard-compiled-", ignore_cleanup_errors=True)
    each = ctx.world_size // ctx.layout.nodes
    with make() if ctx.rank % each == 0 else nullcontext("") as made:
        folder = Path(ctx.all_gather(made)[ctx.rank - ctx.rank % each])
        _turns = _Turns(folder, max(1, min(MOST_WORKERS, host.usable_cores() // each)))
        try:
            with isolation.variables({name: str(folder / name.lower()) for name in CACHES}):
                yield
                ctx.barrier()  # nobody needs the folder any more
        finally:
            _turns = None


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

    @property
    def calls(self) -> int:
        """How often compiled code ran."""
        return self._ran.times

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch._dynamo.config.recompile_limit != MANY:  # dynamo's settings are held per thread
            torch._dynamo.config.recompile_limit = MANY
        before = self._ran.times
        result = self._compiled(*args, **kwargs)
        self.plain_calls += self._ran.times == before
        return result


def compile_blocks(blocks: Iterable[nn.Module], how: Checkpointing = "none") -> None:
    """Let forwards of blocks, recomputed or not, run as compiled code; as they are written, while they are counted.

    The dispatcher, which counts, does not see what compiled code does. All blocks of one class share the code.
    """
    for block in blocks:
        change_forward(block, _unless_counted(type(block).forward, how))


@functools.cache
def _unless_counted(forward: Callable[..., Any], how: Checkpointing) -> Callable[..., Any]:
    """As long as the process lives: dynamo has one limit for all versions of a forward, whoever compiles it."""
    plain = forward if how == "none" else checkpointed(forward, how)
    code = Compiled(plain)

    def run(*args: Any, **kwargs: Any) -> Any:
        return (plain if devices.observers else code)(*args, **kwargs)

    run.code = code  # type: ignore[attr-defined]
    return run


def compiled_code(modules: Iterable[nn.Module]) -> set[Compiled]:
    """Of all blocks of these modules that compile_blocks() has changed."""
    kinds = {kind for each in modules for module in each.modules() for kind in type(module).__mro__}
    found = (getattr(vars(kind).get("forward"), "code", None) for kind in kinds)
    return {code for code in found if code}


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
