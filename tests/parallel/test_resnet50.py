"""The plain loop of ResNet-50, and where its float64 form runs."""

from typing import Any

import pytest
import torch
from scalecard.measuring.counting import flops
from scalecard.parallel import resnet50
from scalecard.workloads import reference
from scalecard.workloads.stage_cuts import Cuts

LOAD = resnet50.Workload(batch_size=2, image_size=64, num_classes=10, lr=0.1, seed=0)
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


@pytest.mark.parametrize("cuts", [(8,), (3, 9, 16)])
def test_a_step_is_its_stages_together(cuts: Cuts) -> None:
    """Each stage alone computes what it does in the whole; the loss has no products."""
    load = LOAD.cut(cuts)
    whole, *stages = (flops(resnet50.step_without_data(load, stage)) for stage in (None, *range(load.num_stages)))
    assert whole == sum(stages)
    assert min(stages) > 0


@pytest.mark.parametrize(
    ("cuts", "crossing"),
    [
        ((8,), [512 * 8 * 8]),  # after layer2, of 64 x 64 pixels
        ((1, 4, 17), [64 * 16 * 16, 256 * 16 * 16, 2048 * 2 * 2]),  # after the stem, layer1 and layer4
    ],
)
def test_the_bytes_that_cross_a_cut(cuts: Cuts, crossing: list[int]) -> None:
    images, handed_over = resnet50.bytes_handed_over(LOAD.cut(cuts))
    assert images == 2 * 3 * 64 * 64 * 4
    assert handed_over == 2 * 4 * sum(crossing)
    assert [value[0].numel() for value in resnet50.activations(LOAD.cut(cuts))[1:]] == crossing
