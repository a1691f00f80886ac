"""What the process that ranks are forked from has loaded and changed in tests (the fixture `forked_ranks`).

It is imported by that process alone.
"""

import pytest  # noqa: F401 - so that a forked rank has it
import scalecard.distributed.rank_server  # noqa: F401
import torch.distributed.launcher.api
import torch.distributed.pipelining  # noqa: F401
import torchvision.models  # noqa: F401
from scalecard import experiments

from support.small_network import replace_resnet50

for name in ("ddp", "hybrid", "pipeline"):
    experiments.load(name)
replace_resnet50()
