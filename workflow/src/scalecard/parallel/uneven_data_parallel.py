"""Data parallelism over unequal devices: each takes the samples that it is given of the minibatch, or none.

    minibatch --divided--> shard d --> summed loss --> gradient d --added up, sent back--> p_d -= lr / batch size * sum

Losses are summed and divided by the whole batch once, so uneven shards stay exact. Each shard is resident on its
device: where the samples come from is another question. Replicas stay the same bit for bit, also on devices of
different kinds: a product and then a difference are rounded alike everywhere, which a fused operation need not be.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from scalecard.hardware.devices import Device
from scalecard.parallel.scratch_allreduce import naive

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Replica:
    """The network and its shard of the minibatch, both on the device."""

    device: Device
    network: nn.Module
    shard: Batch
    times: int

    @property
    def parameters(self) -> list[Tensor]:
        return list(self.network.parameters())


class UnevenDataParallel:
    """One model on the devices that have a share of the minibatch; network(device) makes it, the same each time.

    `shares` has the number of samples of each device, and `times` how often it computes its gradients: one that is to
    be slower does so more than once, and drops the others.
    ValueError if the shares do not make up the batch of images (n, ...) and labels (n,).
    """

    def __init__(
        self,
        network: Callable[[torch.device], nn.Module],
        devices: Sequence[Device],
        shares: Sequence[int],
        batch: Batch,
        *,
        lr: float,
        times: Sequence[int],
    ) -> None:
        if sum(shares) != len(batch[1]) or min(shares) < 0:
            raise ValueError(f"shares = {list(shares)}: must make up the batch of {len(batch[1])} samples")
        images, labels = (part.split(list(shares)) for part in batch)
        self.replicas = []
        for d, device in enumerate(devices):
            if shares[d]:
                shard = images[d].to(device.torch), labels[d].to(device.torch)
                self.replicas.append(Replica(device, network(device.torch), shard, times[d]))
        self.scale = lr / len(batch[1])

    def step(self) -> None:
        """One SGD step.

        A CPU worker takes its work at once, a GPU's is launched by this thread. So devices get their work from the last
        to the first: where the first is a GPU, the others compute already while it is launched.
        """
        backwards = self.replicas[::-1]
        gradients = [r.device.submit(_gradients, r.network, r.shard, r.times) for r in backwards][::-1]
        naive([r.device for r in self.replicas], gradients)
        for replica, gradient in zip(backwards, gradients[::-1], strict=True):
            replica.device.submit(_sgd, replica.parameters, gradient, self.scale)


def _gradients(network: nn.Module, shard: Batch, times: int) -> list[Tensor]:
    images, labels = shard
    for _ in range(times):
        loss = functional.cross_entropy(network(images), labels, reduction="sum")
        gradients = torch.autograd.grad(loss, list(network.parameters()))
    return list(gradients)


@torch.no_grad()
def _sgd(parameters: list[Tensor], gradients: list[Tensor], scale: float) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.sub_(gradient.mul_(scale))


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
