"""Micro-batches whose gradients add up, and clipped gradients: what is proven, and that wrong steps are not."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from scalecard.benchmarks.training.memory_trials import _proven_at
from scalecard.benchmarks.training.pipelines import OURS, Executor, subject
from scalecard.benchmarks.training.strategy import References, Setting
from scalecard.benchmarks.training.validate import NotAWorkload, examined
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import counted
from scalecard.parallel import model_parallel
from scalecard.workloads import reference
from scalecard.workloads.recipe import Recipe
from scalecard.workloads.workload import HOST, Workload, built_in
from torch import nn

STEPS = 3
GPT = {"layers": 2, "width": 16, "heads": 2, "sequence": 4, "vocabulary": 16}


def mine(recipe: Recipe, *, exact: bool = True) -> Workload:
    return replace(
        examined(replace(built_in("gpt", seed=0, batch_size=4, **GPT), recipe=recipe), HOST, STEPS, 2), exact=exact
    )


@pytest.fixture
def devices(machine: Machine) -> Iterator[list[Device]]:
    with open_devices(machine, 2) as opened:
        yield opened


def built(form: Executor, devices: list[Device], workload: Workload, num_micro: int = 1) -> Subject:
    return subject(form, devices, References(HOST, STEPS), Setting(workload, 2, num_micro, cuts=(1,)))


def passes(form: Executor, devices: list[Device], workload: Workload, num_micro: int = 1) -> bool:
    return all(check.passed for check in built(form, devices, workload, num_micro).prove())


def test_a_limit_that_is_never_reached_becomes_half_of_the_shortest_gradient() -> None:
    tight = mine(Recipe(clip=0.1)).recipe.clip
    loose = mine(Recipe(clip=1e6))
    assert tight == 0.1
    model, batch = loose.network(HOST).double(), loose.batch(4, HOST)
    slopes = reference.gradient(model, reference.split(*batch, [4]), loose.plain_loss)
    norm = float(torch.stack([slope.square().sum() for slope in slopes]).sum().sqrt())
    assert 0 < loose.recipe.clip <= norm / 2 * 1.001
    assert mine(Recipe()).recipe.clip == 0


@pytest.mark.parametrize("form", [model_parallel.ModelParallel, OURS["gpipe"], OURS["1f1b"]])
def test_stages_are_clipped_by_the_norm_of_all_of_them(
    form: Executor, devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by their own; and not at all would be wrong as well."""
    workload = mine(Recipe("adamw", clip=1.0))
    assert passes(form, devices, workload, 2)
    own = model_parallel.clip
    each = lambda made, _, max_norm: own(made, model_parallel.squared_norm(made), max_norm)  # noqa: E731
    for wrong in (each, lambda *_: None):
        monkeypatch.setattr(model_parallel, "clip", wrong)
        assert not passes(form, devices, workload, 2)


def test_gradients_that_are_added_up_instead_of_averaged_are_seen_where_nothing_is_clipped(
    devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are clipped, nobody sees how long they were: so they are also proven with a limit out of reach."""
    at = Setting(mine(Recipe("adamw", clip=1.0)), 2)
    timed = replace(at, workload=replace(at.workload, exact=False, batch_size=8))
    clipped, endless = (setting.workload for setting in _proven_at(timed, at, part=False))
    assert (clipped.recipe.clip < 1.0, endless.recipe.clip) == (True, float("inf"))
    (as_timed,) = (setting.workload for setting in _proven_at(timed, None, part=False))
    assert (as_timed.exact, as_timed.batch_size, as_timed.recipe.clip) == (False, 8, float("inf"))
    assert _proven_at(timed, at, part=True) == [at]
    assert passes(model_parallel.ModelParallel, devices, endless)
    own: Callable[..., None] = model_parallel.backward
    monkeypatch.setattr(model_parallel, "backward", lambda loss, *args: own(lambda *given: 2 * loss(*given), *args))
    assert not passes(model_parallel.ModelParallel, devices, endless)


def test_micro_batches_of_any_size_add_up_and_are_counted(devices: list[Device]) -> None:
    """Of 4 samples in 3 micro-batches, 2 and 2: at most so many, as equal as they can be but for the last one."""
    workload = mine(Recipe("adamw", accumulate=3), exact=False)
    assert (workload.micro_batch_size(4), workload.micro_batch_sizes(4, 7)) == (2, (2, 2, 3, 3, 1))
    made = built(model_parallel.ModelParallel, devices, workload, workload.recipe.accumulate)
    assert all(check.passed for check in made.prove())
    work = {count.name: (count.counted, count.expected) for count in counted(made, devices[1].synchronize)}
    assert (work["forwards"], work["updates"]) == ((2, 2), (2, 2))
    assert all(seen == wanted for seen, wanted in work.values())


def test_a_micro_batch_that_weighs_as_much_as_a_larger_one_is_caught(
    devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = replace(mine(Recipe(accumulate=2)), batch_size=3)
    assert passes(model_parallel.ModelParallel, devices, workload, 2)
    own: Callable[..., None] = model_parallel.backward
    monkeypatch.setattr(model_parallel, "backward", lambda *args: own(*args[:-1], 0.5))
    assert not passes(model_parallel.ModelParallel, devices, workload, 2)


def test_a_limit_at_which_nothing_moves_is_refused_by_its_name() -> None:
    with pytest.raises(NotAWorkload, match=r"at no learning rate from 1 to 3e-6, with recipe.clip = 1e-06"):
        mine(Recipe("adamw", clip=1e-6))


def test_clipping_by_hand_is_pytorchs() -> None:
    parameters = [nn.Parameter(torch.zeros(size, dtype=torch.float64)) for size in (5, 3)]
    for limit in (0.5, 100.0):
        slopes = [torch.linspace(-1, 2, len(parameter), dtype=torch.float64) for parameter in parameters]
        for parameter, slope in zip(parameters, slopes, strict=True):
            parameter.grad = slope.clone()
        nn.utils.clip_grad_norm_(parameters, limit)
        reference.clip_by_hand(slopes, limit)
        for parameter, slope in zip(parameters, slopes, strict=True):
            torch.testing.assert_close(parameter.grad, slope, rtol=0, atol=1e-15)
