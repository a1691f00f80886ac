"""The plain loop of ResNet-50, and where its float64 form runs."""

from typing import Any

import pytest
import torch
from scalecard.measuring.counting import flops
from scalecard.training import reference, resnet50

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.mark.parametrize(("exactly", "used"), [(True, [GPU, CPU]), (False, [GPU])])
def test_float64_goes_to_the_cpu_if_a_gpu_has_no_room_for_it(
    monkeypatch: pytest.MonkeyPatch, exactly: bool, used: list[torch.device]
) -> None:
    """What is timed may not go elsewhere: that it does not fit is a result."""
    tried = []
    trained = reference.Plain([], [], [], (1.0, 0.5))

    def run(*args: Any) -> reference.Plain:
        tried.append(args[-1])
        if args[-1] == GPU:
            raise torch.OutOfMemoryError("out of memory")
        return trained

    monkeypatch.setattr(resnet50, "_trained", run)
    load: Any = None
    if exactly:
        assert resnet50.plain(load, GPU, [3], 1, exactly=True) is trained
    else:
        with pytest.raises(torch.OutOfMemoryError):
            resnet50.plain(load, GPU, [3], 1)
    assert tried == used


def test_a_step_is_its_stages_together() -> None:
    """Each stage alone computes what it does in the whole; the loss has no products."""
    load = resnet50.Workload(batch_size=2, image_size=64, num_classes=10, lr=0.1, seed=0)
    whole, *stages = (flops(resnet50.step_without_data(load, stage)) for stage in (None, 0, 1))
    assert whole == sum(stages)
    assert min(stages) > 0
