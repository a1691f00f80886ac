"""Fresh processes, in which everything is measured, one after another; and the server that ranks are forked from.

PyTorch takes seconds to import. So the first fresh process begins early, and the server of its ranks, if there are
any, is forked from it as soon as it has imported everything. Later processes have servers of their own. The parent
imports no PyTorch at all: what it needs to know that takes PyTorch, it asks the first process.

    parent         | begins  | asks                    | looks for disturbances | waits                | saves
    fresh process  | imports | forks | checks a block  |                        | measures ... launch  |
    server                   |                                                  |              forks   |
"""

import atexit
import importlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import forkserver, util
from typing import Any, TypeVar

from scalecard.hardware import isolation
from scalecard.records.record import Reason

RANK_SERVER = "scalecard.distributed.rank_server"  # imported by the server and, there, by the ranks alone
PRELOAD = "SCALECARD_FORK_SERVER_PRELOAD"  # inherited by the processes that measure
INTERRUPT = signal.getsignal(signal.SIGINT)  # what this process does then, once it has work
T = TypeVar("T")

_early = list[tuple[ProcessPoolExecutor, "Future[None]"]]()  # at most one, until its work is known


class ProcessLost(RuntimeError):
    """The measuring process was killed."""

    reason = Reason.LOST


@contextmanager
def early_start(modules: Sequence[str], *, preload: Sequence[str] = ()) -> Iterator[None]:
    """The first process that measures begins now, and imports these modules, unless it would disturb another run.

    Its fork server, and that of each one that follows, has imported those of `preload`; without any there is no server.
    """
    with ExitStack() as entered:
        entered.enter_context(isolation.variables({PRELOAD: " ".join(preload)}))
        if isolation.machine_is_free():
            pool = entered.enter_context(_pool("spawn"))
            entered.callback(_early.clear)
            _early.append((pool, pool.submit(_import, [*modules, *preload])))
        yield


def asked(name: str, work: Callable[..., T], *args: Any) -> T:
    """What work(*args) returns in the process that began early, and is still to measure, or in another one.

    When it returns, the early process has imported everything, and waits. Raise ProcessLost if the process is killed.
    """
    if _early and not _early[-1][1].exception():
        return _result(_early[-1][0], name, work, *args)
    return in_a_fresh_process(name, work, *args)


def in_a_fresh_process(name: str, work: Callable[..., T], *args: Any, start: str = "spawn", early: bool = False) -> T:
    """What work(*args) returns in a process that began `early`, if there is one, or begins now.

    Raise ProcessLost, which names the experiment, if it is killed.
    """
    with _started() if early and _early else _pool(start) as fresh:
        return _result(fresh, name, work, *args)


def _result(pool: ProcessPoolExecutor, name: str, work: Callable[..., T], *args: Any) -> T:
    try:
        return pool.submit(_in_environment, dict(os.environ), work, *args).result()
    except BrokenProcessPool as error:
        raise ProcessLost(f"{name}: the measuring process was killed") from error


def start_fork_server() -> None:
    """In a fresh process that has imported what it needs, and computed nothing: its server has imported the same."""
    if modules := os.environ.get(PRELOAD, "").split():
        multiprocessing.set_forkserver_preload([RANK_SERVER, *modules])
        start, util.spawnv_passfds = util.spawnv_passfds, _forked  # the server runs in a fork of this process
        try:
            forkserver.ensure_running()
        finally:
            util.spawnv_passfds = start
        first = multiprocessing.get_context("forkserver").Process(target=int)
        first.start()
        first.join()  # it forks nothing before it has imported what was missing


def _forked(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """As multiprocessing.util.spawnv_passfds: start `python ... -c PROGRAM` with these files open, but by a fork."""
    sys.stdout.flush()  # or the fork would write it once more
    if process := os.fork():
        return process
    try:
        for file in map(int, os.listdir("/proc/self/fd")):
            if file > 2 and file not in passfds:
                with suppress(OSError):  # that of the listing itself
                    os.close(file)
        exec(args[-1])
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)


def _started() -> ProcessPoolExecutor:
    """The early one, or one that begins now if that was lost, or could not import its modules."""
    pool, ready = _early.pop()
    return _pool("spawn") if ready.exception() else pool


def _pool(start: str) -> ProcessPoolExecutor:
    begin = _begin if start == "spawn" else isolation.die_with
    return ProcessPoolExecutor(1, multiprocessing.get_context(start), initializer=begin, initargs=(os.getpid(),))


def _begin(parent: int) -> None:
    atexit.register(os._exit, 0)  # handlers run in reverse, so this one last: finalising PyTorch would take a second
    isolation.die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent, which is interrupted too, ends it


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    start_fork_server()


def _in_environment(environment: Mapping[str, str], work: Callable[..., T], *args: Any) -> T:
    """As its parent's is now, which may have changed since this process began."""
    os.environ.clear()
    os.environ.update(environment)
    waiting = signal.signal(signal.SIGINT, INTERRUPT)
    try:
        return work(*args)
    finally:
        signal.signal(signal.SIGINT, waiting)
