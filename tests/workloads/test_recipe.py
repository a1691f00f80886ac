"""The optimisers that the plain loop computes by hand, against PyTorch's; and what computes in bfloat16."""

import copy
from dataclasses import replace
from typing import get_args

import pytest
import torch
import yaml
from scalecard.measuring.case_variant import Subject, version
from scalecard.measuring.counting import counted, operations
from scalecard.report.sections.strategies import OPTIMIZERS
from scalecard.workloads import recipe, reference
from scalecard.workloads.recipe import (
    BETAS,
    Checkpointing,
    OptimizerName,
    OptimizerSettings,
    Precision,
    autocast_forward,
    change_forward,
    checkpointed,
)
from support.projects import ROOT
from torch import Tensor, nn

EVERY = [name for name in get_args(OptimizerName) if name != "own"]
STEPS = 3


def weights() -> list[nn.Parameter]:
    return [nn.Parameter(torch.linspace(-1, 1, size, dtype=torch.float64)) for size in (5, 3)]


def gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(size, dtype=torch.float64, generator=generator) / 10 for size in (5, 3)]


def by_hand(settings: OptimizerSettings, scale: float = 1.0) -> list[nn.Parameter]:
    parameters = weights()
    optimizer = reference.OptimizerByHand(settings, parameters)
    for step in range(STEPS):
        optimizer.step([scale * slope for slope in gradients(step)])
    return parameters


def by_pytorch(settings: OptimizerSettings, *, fused: bool = False) -> list[nn.Parameter]:
    parameters = weights()
    optimizer = settings.build(parameters, fused=fused)
    for step in range(STEPS):
        for parameter, slope in zip(parameters, gradients(step), strict=True):
            parameter.grad = slope
        optimizer.step()
    return parameters


def distance(ours: list[nn.Parameter], theirs: list[nn.Parameter]) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_pytorchs_optimizer_does_what_the_formula_says(name: OptimizerName, *, fused: bool) -> None:
    settings = OptimizerSettings(0.1, name)
    assert distance(by_hand(settings), by_pytorch(settings, fused=fused)) < 1e-15


@pytest.mark.parametrize("name", EVERY)
def test_half_of_a_gradient_is_far_from_all_of_it(name: OptimizerName) -> None:
    settings = OptimizerSettings(0.1, name)
    whole, half = by_hand(settings), by_hand(settings, 0.5)
    assert distance(whole, half) > 0.3 * distance(whole, weights())


def test_with_the_usual_epsilon_it_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "EPSILON", 1e-8)
    settings = OptimizerSettings(0.1, "adamw")
    whole, half = by_hand(settings), by_hand(settings, 0.5)
    assert distance(whole, half) < 1e-5 * distance(whole, weights())


def test_each_has_its_own_steps() -> None:
    found = [by_hand(OptimizerSettings(0.1, name)) for name in EVERY]
    assert min(distance(a, b) for place, a in enumerate(found) for b in found[:place]) > 1e-3


@pytest.mark.parametrize("name", EVERY)
def test_a_step_writes_a_parameter_and_keeps_moments_as_often_as_it_says(name: OptimizerName) -> None:
    settings, parameters = OptimizerSettings(0.1, name), weights()
    optimizer = settings.build(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    before = [version(parameter) for parameter in parameters]
    optimizer.step()
    written = {version(now) - then for now, then in zip(parameters, before, strict=True)}
    assert written == {settings.writes_per_step}
    states = optimizer.state.values()
    kept = [value for state in states for value in state.values() if value is not None and value.numel() > 1]
    assert sum(value.nbytes for value in kept) == settings.state_bytes(parameters)


def own(parameters: list[Tensor]) -> torch.optim.Optimizer:
    groups = [
        {"params": parameters[:1], "weight_decay": 0.1},
        {"params": parameters[1:], "lr": 3e-4, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-4, betas=BETAS)


def test_an_optimizer_of_a_file_gets_values_with_which_a_proof_can_tell() -> None:
    """And the ratio of its learning rates stays."""
    made = OptimizerSettings(0.1, "own", own).build(weights())
    assert [group["lr"] for group in made.param_groups] == pytest.approx([0.1, 0.3])
    assert [(group["eps"], group["weight_decay"]) for group in made.param_groups] == [(1.0, 1e-6), (1.0, 0.0)]


def test_the_plain_loop_takes_the_optimizer_of_the_file() -> None:
    parameters = weights()
    step = reference.optimizer_step(
        OptimizerSettings(0.1, "own", lambda given: torch.optim.SGD(given, lr=5.0)), parameters
    )
    for number in range(STEPS):
        step(gradients(number))
    assert distance(parameters, by_hand(OptimizerSettings(0.1))) < 1e-15


def test_what_an_optimizer_of_a_file_keeps_is_told_without_data() -> None:
    settings, parameters = OptimizerSettings(0.1, "own", own), weights()
    assert settings.state_bytes(parameters) == 2 * sum(parameter.nbytes for parameter in parameters)
    assert settings.counts(parameters) == {"optimizer bytes": 2 * (5 + 3) * 8}


@pytest.mark.parametrize("option", ["fused", "capturable"])
def test_what_needs_data_or_a_gpu_to_tell_what_it_keeps_is_asked_otherwise(option: str) -> None:
    made = OptimizerSettings(0.1, "own", lambda given: torch.optim.AdamW(given, **{option: True}))
    assert made.state_bytes(weights()) == 2 * (5 + 3) * 8


def test_a_learning_rate_of_zero_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="the learning rate of its first group must be another number than 0"):
        OptimizerSettings(0.1, "own", lambda given: torch.optim.SGD(given, lr=0.0)).build(weights())


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_one_kernel_updates_all_where_the_device_has_it(name: OptimizerName, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, parameters = OptimizerSettings(0.1, name), weights()
    assert settings.updates(parameters) == {"updates": settings.writes_per_step}
    monkeypatch.setattr(recipe, "FUSING", ("cpu",))
    subject = Subject(work=settings.build(parameters).step, prove=tuple, expected=settings.counts(parameters))
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    subject.work()
    found = counted(replace(subject, optimizers=[subject.work.__self__]), lambda: None)  # type: ignore[attr-defined]
    assert {count.name: count.counted for count in found} == dict(subject.expected)
    assert subject.expected["fused updates"] == 1
    assert OptimizerSettings(0.1).updates(parameters) == {"updates": 1}, "the textbooks' stays as it is"


def test_the_configuration_and_the_report_know_every_one() -> None:
    schema = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
    keys = schema["properties"]["workloads"]["additionalProperties"]["properties"]["recipe"]["properties"]
    assert set(keys["optimizer"]["enum"]) == set(OPTIMIZERS) == {*EVERY, "own"}
    assert set(keys["precision"]["enum"]) == set(get_args(Precision))
    assert set(keys["checkpointing"]["enum"]) == set(get_args(Checkpointing))


def test_a_module_in_bfloat16_rounds_every_product_and_keeps_its_parameters() -> None:
    module = autocast_forward(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))

    def both() -> None:
        module(torch.ones(3, 4)).float().sum().backward()

    found = operations(both, ["FLOPs", "float32 FLOPs"])
    assert found["FLOPs"] > found["float32 FLOPs"] == 0
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    assert {parameter.grad.dtype for parameter in module.parameters() if parameter.grad is not None} == {torch.float32}


def test_what_is_recomputed_keeps_its_inputs_alone_and_runs_its_forward_twice() -> None:
    module = nn.Sequential(nn.Linear(4, 64), nn.GELU(), nn.Linear(64, 4))
    plain, kept = copy.deepcopy(module), dict[str, int]()
    change_forward(module, checkpointed(type(module).forward, "blocks"))

    def gradients(model: nn.Module, name: str) -> list[Tensor]:
        sizes = list[int]()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            made = model(torch.ones(3, 4, requires_grad=True)).square().sum()
        kept[name] = max(sizes)
        return list(torch.autograd.grad(made, list(model.parameters())))

    assert all(map(torch.equal, gradients(module, "recomputed"), gradients(plain, "plain")))
    assert kept["recomputed"] == 3 * 4 < kept["plain"]
    found = operations(lambda: gradients(module, "recomputed"), ["FLOPs", "recomputed FLOPs"])
    forward = 2 * 3 * 4 * 64
    assert found["recomputed FLOPs"] == forward, "the last product's result is not needed"
    assert found["FLOPs"] - found["recomputed FLOPs"] == operations(lambda: gradients(plain, "plain"))["FLOPs"]


def test_selective_checkpointing_computes_every_other_product_once() -> None:
    """Of four products the second is computed again: the first and the third are kept, the fourth is not needed."""
    module = nn.Sequential(*(layer for out in (8, 16, 32) for layer in (nn.Linear(out // 2, out), nn.GELU())))
    module.append(nn.Linear(32, 4))
    plain = copy.deepcopy(module)
    change_forward(module, checkpointed(type(module).forward, "selective"))

    def gradients(model: nn.Module) -> list[Tensor]:
        made = model(torch.ones(3, 4, requires_grad=True)).square().sum()
        return list(torch.autograd.grad(made, list(model.parameters())))

    assert all(map(torch.equal, gradients(module), gradients(plain)))
    found = operations(lambda: gradients(module), ["FLOPs", "recomputed FLOPs"])
    assert found["recomputed FLOPs"] == 2 * 3 * 8 * 16
    assert found["FLOPs"] - found["recomputed FLOPs"] == operations(lambda: gradients(plain))["FLOPs"]


def test_selective_checkpointing_computes_attention_once() -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x) * 2

    module = Attention()
    change_forward(module, checkpointed(type(module).forward, "selective"))

    def both() -> None:
        module(torch.ones(1, 2, 8, 4, requires_grad=True)).square().sum().backward()

    assert operations(both, ["FLOPs", "recomputed FLOPs"])["recomputed FLOPs"] == 0


def test_a_copy_in_bfloat16_computes_with_its_own_parameters() -> None:
    module = autocast_forward(nn.Linear(4, 2))
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert isinstance(other, nn.Linear)
    assert other(torch.ones(1, 4)).tolist() == [[0, 0]]
    assert other(torch.ones(1, 4)).dtype == torch.bfloat16
    assert module(torch.ones(1, 4)).abs().max() > 0
