"""What an epoch covers, however many ranks share it."""

from types import SimpleNamespace
from typing import Any

import pytest
from scalecard import experiments
from scalecard.distributed import Layout
from scalecard.experiments import ddp
from scalecard.workloads import reference
from support.blocks import block

IMAGES = 60_000  # of Fashion-MNIST


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 6, 7, 8, 12, 24, 300])
def test_an_epoch_covers_the_images_on_any_number_of_ranks(ranks: int) -> None:
    """256 samples that 3 ranks cannot share equally become 255; only a last, smaller batch may be left out."""
    spec: Any = experiments.build("ddp", block("ddp", "full"))
    context: Any = SimpleNamespace(world_size=ranks, layout=Layout(ranks))
    variant = ddp._epochs(context, spec, "lenet", SimpleNamespace(name="synthetic"))  # type: ignore[arg-type]
    size = variant.timed_at.workload.batch_size
    assert variant.case["batch_size"] == size
    assert size == 256 if 256 % ranks == 0 else abs(size - 256) < ranks
    assert sum(map(len, reference.batches(IMAGES, size, ranks))) > IMAGES - size
