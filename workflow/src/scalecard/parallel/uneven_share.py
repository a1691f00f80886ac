"""How to divide a minibatch between two devices: the share with which both are predicted to finish together.

time |  first alone        second alone on the rest
     |         \\ . '      /
     |      . '  \\       /
     |  . '       x     <- both finish at the same time: neither waits
     +------------|-----------> samples on the first device
"""

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

KEPT_BITS = 3  # of a number of samples that is swept: neighbours differ by a seventh to a third
NEIGHBOURS = 2  # of the prediction that are swept, on either side


def time_of(share: int, measured: Mapping[int, float]) -> float:
    """The time of a share, linearly between the measured times {samples: seconds}; nothing takes no time.

    More samples never take less time: where noise says so, the longer time of the fewer holds. ValueError beyond what
    was measured.
    """
    if share == 0:
        return 0.0
    samples = sorted(measured)
    if not samples or not samples[0] <= share <= samples[-1]:
        raise ValueError(f"a share of {share} samples is beyond those that were measured: {samples}")
    return float(np.interp(share, samples, list(accumulate((measured[n] for n in samples), max))))


def predicted_share(batch_size: int, first: Mapping[int, float], second: Mapping[int, float]) -> tuple[int, float]:
    """The samples on the first device, of two, and the time until both are done, by each one's {samples: seconds}.

    The crossing of two monotone curves, in whole samples. If one sample takes a device longer than the whole batch
    takes the other, it gets none. What the devices exchange is not part of it.
    """
    times = {n: (time_of(n, first), time_of(batch_size - n, second)) for n in range(batch_size + 1)}
    best = min(times, key=lambda n: (max(times[n]), abs(times[n][0] - times[n][1])))
    return best, max(times[best])


def swept(predicted: int, batch_size: int) -> list[int]:
    """The prediction for one device, with its neighbours on either side, below the whole batch.

    Neighbours are numbers whose first three bits say all, 1 to 8, 10, 12, 14, 16, 20 ...: predictions that differ a
    little, as those of several processes do, share them.
    """
    ladder = [n for n in range(1, batch_size) if n % (1 << max(0, n.bit_length() - KEPT_BITS)) == 0]
    below, above = [n for n in ladder if n < predicted], [n for n in ladder if n > predicted]
    return sorted({*below[-NEIGHBOURS:], *above[:NEIGHBOURS], *({predicted} if 0 < predicted < batch_size else ())})
