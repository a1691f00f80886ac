"""Published efficiencies of hundreds of GPUs, forecast from published parts; docs/method.md states the errors.

Of these nothing was fitted: not what overlaps (all that may be is weighed alike), nor the links within a server, which
are taken to be PCIe 3's. A GPU's own rate is TensorFlow's for a P100, which is not the servers' own.

    efficiency   Horovod's benchmarks: 128 servers of 4 Pascal GPUs, RoCE at 25 Gbit/s, batch 64
                 https://github.com/horovod/horovod/blob/master/docs/benchmarks.rst
                 Goyal et al., Accurate, Large Minibatch SGD: servers of 8 P100, Ethernet at 50 Gbit/s, batch 32
                 https://arxiv.org/abs/1706.02677 (abstract; sections 4 and 5)
    rate         images/s of one P100, synthetic data
                 https://www.tensorflow.org/performance/benchmarks
    parameters   https://pytorch.org/vision/stable/models.html; of Inception V3 without its auxiliary head 23.8 million
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scalecard.analysis.forecast.fitted_terms import NUM, Draws, band, middle, overlap
from scalecard.analysis.forecast.network import Exchange, Fitted, Layout, Network
from support.builders import timed

WITHIN = 1e10  # bytes/s between the GPUs of a server
BUCKET = 25e6


@dataclass(frozen=True)
class Published:
    """An efficiency, and the parts that were published with it or elsewhere."""

    efficiency: float
    parameters: float
    images_per_second: float
    batch: int
    gpus: int
    per_node: int
    gbit_per_s: float

    def forecast(self) -> Draws:
        """Of the efficiency, with weak scaling."""
        sizes = [2**k for k in range(12, 30, 2)]
        wire = 2 * (self.per_node - 1) / self.per_node
        known = [timed([2e-5 + wire * size / WITHIN] * 12, devices=self.per_node, bytes=size) for size in sizes]
        network, size = Network(self.gbit_per_s, 20), 4 * self.parameters
        reduce = Exchange(2, {self.per_node: Fitted.of(known, 2)}, {}, self.per_node, network)
        calls = max(1, round(size / BUCKET))
        exchanged = calls * reduce.seconds(size / calls, Layout(self.gpus, self.gpus // self.per_node))
        computes = np.full(NUM, self.batch / self.images_per_second)
        found: Draws = computes / (computes + overlap([], extra=0.01, name="published").waits(computes, exchanged))
        return found


HOROVOD = {"batch": 64, "gpus": 512, "per_node": 4, "gbit_per_s": 25.0}
GOYAL = {"batch": 32, "gpus": 256, "per_node": 8, "gbit_per_s": 50.0}


@pytest.mark.parametrize(
    ("published", "error"),
    [
        (Published(0.90, 23.8e6, 142, **HOROVOD), 0.036),
        (Published(0.68, 138.4e6, 154, **HOROVOD), -0.211),
        (Published(0.90, 25.6e6, 195, **GOYAL), 0.000),
    ],
    ids=["Horovod, Inception V3", "Horovod, VGG-16", "Goyal et al., ResNet-50"],
)
def test_the_error_is_what_the_documentation_says(published: Published, error: float) -> None:
    found = published.forecast()
    assert middle(found) / published.efficiency - 1 == pytest.approx(error, abs=0.005)
    limits = band(found)
    assert limits.low < published.efficiency < limits.high
