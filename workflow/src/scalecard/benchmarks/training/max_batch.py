"""The largest batch that fits into a device's memory, by bisection that memory's own growth makes shorter."""

from collections.abc import Callable

GRAIN = 16  # the answer is right to one part in so many


def largest(
    peak: Callable[[int], float | None],
    start: int,
    known: float,
    *,
    slope: float,
    memory: float,
    most: int,
    multiple: int = 1,
) -> int:
    """The largest batch that was seen to fit, up to `most`: `start`, or a multiple of `multiple`.

    peak(batch) tries one and returns the bytes that it needed; None if they were too many. `start` fits, in `known`
    bytes, and each further sample takes at most `slope` bytes. The next one that is tried is at most twice the largest
    that fitted, halfway to the smallest that did not, and never beyond where the line through the last two peaks meets
    `memory`: if only one rank ran out of memory, the others would wait for it in vain.
    """
    fits, above = start, most + 1
    while True:
        reach = fits + int((memory - known) / slope) if slope > 0 else above - 1
        middle = 2 * fits if above > most else (fits + above) // 2
        batch = min(reach, middle, above - 1) // multiple * multiple
        if batch - fits < max(1, fits // GRAIN):
            return fits
        found = peak(batch)
        if found is None or found > memory:
            above = batch
        else:
            slope, fits, known = (found - known) / (batch - fits), batch, found
