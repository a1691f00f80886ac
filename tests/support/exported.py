"""Made-up results of every experiment, and the files that are exported of them."""

import functools
from dataclasses import replace

from scalecard.exports import write_exports
from scalecard.records.record import Reason, Record, Result

from support.every_experiment import every_result


@functools.cache
def results(gpus: int = 0) -> tuple[Result, ...]:
    """Of two devices, with two processes; one case more was not measured."""
    made = every_result("box8", gpus=gpus, processes=2)
    lost = Record.failed({"devices": 64}, "CUDA out of memory, 50% of #1", reason=Reason.OUT_OF_MEMORY)
    return (replace(made[0], records=[*made[0].records, lost]), *made[1:])


@functools.cache
def files(gpus: int = 0) -> dict[str, bytes]:
    """Their contents by name; they are not to be changed."""
    made, left_out = write_exports.of_results(results(gpus))
    assert not left_out
    return made


def text(name: str, gpus: int = 0) -> str:
    """The content of one."""
    return files(gpus)[name].decode()
