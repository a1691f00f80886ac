"""What the process that ranks are forked from has loaded and changed in tests (the fixture `forked_ranks`).

It is imported by that process alone.
"""

import pytest  # noqa: F401 - so that a forked rank has it
import scalecard.distributed.rank_server  # noqa: F401
import torch.distributed.pipelining  # noqa: F401
from scalecard import experiments
from scalecard.parallel import resnet50

from support.small_network import small_stages

for name in ("ddp", "hybrid", "pipeline"):
    experiments.load(name)
resnet50.resnet50_stages = small_stages
