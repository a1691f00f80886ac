"""The process that ranks are forked from: it has imported PyTorch once for all launches of a measuring process.

multiprocessing's fork server imports this module before it forks anything, and nobody else does. It never touches a
GPU and runs no parallel region, so what it forks may.
"""

import os

from scalecard.hardware import isolation

PID, ENVIRONMENT = os.getpid(), dict(os.environ)

isolation.die_with(os.getppid())


def become_rank(environment: dict[str, str]) -> None:
    """In a forked rank: end with the server, and take over the environment of the process that launches it.

    What the elastic agent has set for this rank alone stays.
    """
    assert os.getpid() != PID, "this module is imported before a rank is forked"
    isolation.die_with(PID)
    own = {key: value for key, value in os.environ.items() if ENVIRONMENT.get(key) != value}
    os.environ.clear()
    os.environ.update(environment | own)
