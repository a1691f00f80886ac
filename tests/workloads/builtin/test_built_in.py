"""The built-in models are what they are called: what they compute, by other means, and how many operations it takes."""

import inspect
from typing import Any, cast

import pytest
import torch
from scalecard.jobs import workloads
from scalecard.measuring.counting import flops
from scalecard.workloads.builtin import gpt, resnet50, toy
from scalecard.workloads.builtin.lenet import lenet_parameters
from scalecard.workloads.workload import HOST, built_in
from support.blocks import CONFIG
from torch import nn
from torchvision.models import resnet50 as torchvisions


def test_lenet_is_the_textbooks() -> None:
    """Dive into Deep Learning: two convolutions with ReLU and average pooling, two dense layers."""
    parameters = [p * 20 for p in lenet_parameters(seed=0, dtype=torch.float64)]
    layers = nn.Sequential(
        *(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)),
    ).double()
    with torch.no_grad():
        for ours, theirs in zip(layers.parameters(), parameters, strict=True):
            ours.copy_(theirs.T if theirs.dim() == 2 else theirs)
        module = built_in("lenet", seed=0, exact=True).network(HOST)
        for ours, theirs in zip(module.parameters(), parameters, strict=True):
            ours.copy_(theirs)
        images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
        torch.testing.assert_close(module(images), layers(images), rtol=0, atol=1e-12)
    assert sum(p.numel() for p in parameters) == 200 + 25_050 + 102_528 + 1_290


def test_resnet_18_is_the_textbooks_variant() -> None:
    """A 3x3 stem of stride 1 and no pooling: the first residual blocks see whole images."""
    model, shapes = cast(Any, built_in("resnet18", seed=0).network(HOST)), []
    model.layer1.register_forward_pre_hook(lambda module, inputs: shapes.append(tuple(inputs[0].shape)))
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    assert shapes == [(2, 64, 28, 28)]
    stem, head = 640 - 9_408, 5_130 - 513_000  # beside torchvision's ResNet-18 for 1000 classes of colour images
    assert sum(p.numel() for p in model.parameters()) == 11_689_512 + stem + head
    weights = torch.cat([m.weight.flatten() for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)])
    assert float(weights.detach().std()) == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize(
    ("name", "narrow", "image", "others"),
    # Of all parameters those with channels on one side only: images' or classes', biases and batch normalisation.
    [("resnet18", "resnet18_quarter", (2, 1, 28, 28), 10), ("resnet50", "resnet26_quarter", (2, 3, 64, 64), 1000)],
)
def test_a_quarter_has_the_same_layers_with_a_quarter_of_the_channels(
    name: str, narrow: str, image: tuple[int, ...], others: int
) -> None:
    whole, quarter = (built_in(each, seed=0).network(HOST) for each in (name, narrow))
    assert quarter(torch.rand(image)).shape == (2, others)
    larger, pairs = dict(whole.named_parameters()), dict(quarter.named_parameters())
    assert len(pairs) > 60
    for same, small in pairs.items():
        large = larger[same]
        ends = same in ("conv1.weight", "conv1.bias", "fc.weight", "fc.bias")
        assert large.numel() == small.numel() * (16 if large.dim() > 1 and not ends else 4) or same == "fc.bias", same


def test_resnet_26_has_two_bottlenecks_a_layer() -> None:
    modules = [*built_in("resnet26_quarter", seed=0).network(HOST).named_modules()]
    layers = [
        name for name, module in modules if isinstance(module, nn.Conv2d | nn.Linear) and "downsample" not in name
    ]
    assert len(layers) == 26
    assert {name.partition(".")[0] for name in layers} == {"conv1", "layer1", "layer2", "layer3", "layer4", "fc"}


def test_the_toy_is_the_tutorials() -> None:
    """PyTorch's tutorial on model parallelism: Linear(10, 10), ReLU, Linear(10, 5)."""
    first, second = toy.blocks(toy.model())
    assert [tuple(p.shape) for stage in (first, second) for p in stage.parameters()] == [(10, 10), (10,), (5, 10), (5,)]
    x = torch.randn(3, 10)
    assert torch.equal(first(x), first[0](x).relu())


def test_the_blocks_of_resnet_50_are_torchvisions_network() -> None:
    torch.manual_seed(0)
    whole = torchvisions(num_classes=7).eval()
    blocks = resnet50.blocks(whole)
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(nn.Sequential(*blocks)(images), whole(images))
    assert len(blocks) == 18


def test_a_transformer_sees_no_token_that_comes_later() -> None:
    torch.manual_seed(0)
    model = gpt.model(layers=2, width=8, heads=2, sequence=6, vocabulary=11)
    tokens, following = gpt.batch(3, 1, sequence=6, vocabulary=11)
    assert torch.equal(tokens[:, 1:], following[:, :-1])
    changed = tokens.clone()
    changed[:, 4] = (tokens[:, 4] + 1) % 11
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])
    with pytest.raises(ValueError, match="heads = 3: must divide width = 8"):
        gpt.model(width=8, heads=3)


def test_the_transformers_operations_are_those_of_its_layers() -> None:
    """Forward and backward take 6 per weight and token; the rest is attention, whose mask halves what is counted."""
    model = gpt.model(layers=2, width=8, heads=2, sequence=4, vocabulary=11)
    tokens, targets = gpt.batch(2, 0, sequence=4, vocabulary=11)
    counted = flops(lambda: gpt.loss(model(tokens), targets).backward())
    width, layers, vocabulary, num_tokens = 8, 2, 11, 2 * 4
    products = 6 * num_tokens * (layers * 12 * width**2 + vocabulary * width)
    assert products < counted < 1.5 * products


def test_heads_that_the_devices_cannot_share_are_named() -> None:
    """What tensor parallelism over 8 devices makes of 12 heads."""
    attention = gpt.Attention(24, 3)
    for name in ("query", "key", "value"):
        setattr(attention, name, nn.Linear(24, 12))
    with pytest.raises(ValueError, match=r"each device would have 1.5 of 3 heads"):
        attention(torch.ones(1, 2, 24))


@pytest.mark.parametrize("scale", ["full", "quick"])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_devices_of_a_node_can_share_the_heads_by_default(scale: str, devices: int) -> None:
    """Or tensor parallelism would not be measured on them."""
    values = workloads.scaled(CONFIG["workloads"], scale)["gpt"]
    width = values["width"]
    attention = gpt.Attention(width, values["heads"])
    for name in ("query", "key", "value"):
        setattr(attention, name, nn.Linear(width, width // devices))
    attention.out = nn.Linear(width // devices, width)
    assert attention(torch.ones(1, 2, width)).shape == (1, 2, width)


def test_without_values_the_transformer_is_that_of_the_configuration() -> None:
    defaults = {name: one.default for name, one in inspect.signature(gpt.model).parameters.items()}
    given = CONFIG["workloads"]["gpt"]
    assert {name: given[name] for name in defaults if name in given} == {
        name: default for name, default in defaults.items() if name in given
    }


def test_the_printed_resnet_18_has_the_textbooks_blocks() -> None:
    """Beside torchvision's: biases in 16 + 3 convolutions of the blocks, and no normalisation on 3 shortcuts."""
    printed, torchvisions = (built_in(name, seed=0).network(HOST) for name in ("resnet18_printed", "resnet18"))
    assert printed(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    biases = 4 * 64 + 4 * 128 + 4 * 256 + 4 * 512 + 128 + 256 + 512
    norms = 2 * (128 + 256 + 512)
    count = {model: sum(p.numel() for p in model.parameters()) for model in (printed, torchvisions)}
    assert count[printed] == count[torchvisions] + biases - norms


def test_lazy_layers_of_the_printed_resnet_18_keep_pytorchs_initialisation() -> None:
    """Uniform in a convolution of n inputs, within 1 / sqrt(n): of 9 * 8 inputs a standard deviation of 0.068."""
    lazy, whole = (
        cast(Any, built_in("resnet18_printed", seed=0, share=8, initialised=which).network(HOST))
        for which in ("not lazy", "all")
    )
    for model, block in ((lazy, 1 / (72 * 3) ** 0.5), (whole, 0.01)):
        assert float(model[0].weight.detach().std()) == pytest.approx(0.01, rel=0.25), "the stem"
        assert float(model[-1].weight.detach().std()) == pytest.approx(0.01, rel=0.1), "the head"
        assert float(model[3].conv2.weight.detach().std()) == pytest.approx(block, rel=0.1)
