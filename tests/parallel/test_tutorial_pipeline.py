"""The tutorial's own code computes what the plain model does, in its own order, and draws its batch in each step."""

import pytest
import torch
from scalecard.parallel.tutorial_pipeline import TutorialModel, TutorialStep
from torch import Tensor, nn
from torch.nn import functional

HERE = torch.device("cpu")


def stages(count: int) -> list[nn.Module]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double() for _ in range(count)]


def batch(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs, targets = (torch.randn(size, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    return inputs, targets


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("split_size", [0, 1, 3, 7])
def test_the_output_is_that_of_the_stages_in_turn(count: int, split_size: int) -> None:
    made = stages(count)
    inputs, _ = batch(7)
    whole = nn.Sequential(*made)(inputs)
    assert torch.allclose(TutorialModel(made, [HERE] * count, split_size)(inputs), whole, rtol=0, atol=1e-12)


def test_the_second_stage_is_given_a_micro_batch_before_the_first_gets_the_next() -> None:
    made, seen = stages(2), list[tuple[int, int]]()
    for number, stage in enumerate(made):
        stage.register_forward_hook(lambda _m, given, _o, number=number: seen.append((number, len(given[0]))))
    TutorialModel(made, [HERE] * 2, 2)(batch(5)[0])
    assert seen == [(0, 2), (1, 2), (0, 2), (1, 2), (0, 1), (1, 1)]


def test_a_step_draws_its_batch_and_is_one_of_plain_sgd() -> None:
    made, drawn = stages(2), list[int]()
    model = TutorialModel(made, [HERE] * 2, 2)

    def draw() -> tuple[Tensor, Tensor]:
        drawn.append(len(drawn))
        return batch(5)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    step = TutorialStep(model, draw, loss=functional.mse_loss, optimizer=optimizer)
    plain = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    for _ in range(2):
        step()
        inputs, targets = batch(5)
        hidden = (inputs @ plain[0].T + plain[1]).tanh()
        loss = ((hidden @ plain[2].T + plain[3]).tanh() - targets).square().mean()
        for parameter, slope in zip(plain, torch.autograd.grad(loss, plain), strict=True):
            parameter.data -= 0.5 * slope
    assert drawn == [0, 1]
    for ours, theirs in zip(model.parameters(), plain, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
