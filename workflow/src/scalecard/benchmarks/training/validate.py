"""Looks at the workloads of a configuration before anything is measured: are they trained so that a proof can tell?"""

import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import psutil
import torch
from annotated_types import Len
from torch import Tensor, nn
from torch.utils.data import default_collate

from scalecard import progress
from scalecard.benchmarks.training.not_a_workload import (
    NotAWorkload,
    check_functions,
    lacks_a_package,
    naming_errors,
    where_it_raised,
)
from scalecard.benchmarks.training.strategy import BEYOND_ROUNDING, CHECKED_EACH, References
from scalecard.measuring.proof import MOVED, TOLERANCE, largest_difference
from scalecard.measuring.shared_decisions import decided
from scalecard.workloads import recipe as recipes
from scalecard.workloads.compiled import no_compiler
from scalecard.workloads.meta import META, NotInitialised, is_on_meta, materialised
from scalecard.workloads.modules import BATCH_NORM, accepted
from scalecard.workloads.nested import Tree, leaves, shapes_differ
from scalecard.workloads.recipe import TEXTBOOKS, Checkpointing, OptimizerSettings, Precision, Recipe
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import HOST, Workload, chosen

Trained = TypeVar("Trained", bound=Workload)
RATES = [10 ** (-half / 2) for half in range(12)]  # from 1 to 3e-6
ROOM = 4  # times the parameters, for their gradients and what two samples need
RATE_MARGIN = 10  # how many times the rate that is used the largest is at which a step lowers the loss
COMPILED = "calls torch.compile; return the model as it is written, and set recipe.compile = true"
DRAWS = (
    "its loss differs from run to run in eval mode, so no proof can tell; draw random numbers if self.training alone"
)
NO_LOSS = (
    "works in training mode and not in eval mode; write TRAINING = True in the file to have it proven in the first"
)


@functools.cache
def check(workload: Workload) -> None:
    """NotAWorkload if it is none: a file of the user's is looked at before anything is measured; ours are tested.

    Once for all experiments: its model may take long to make. With SCALECARD_PACKAGES_IN_IMAGE=1 the workflow says that
    they are to run in an image: what needs a package that the image alone may have passes, as the Spec is built there
    again.
    """
    try:
        check_functions(workload)
        if not workload.file:
            with torch.device("meta"):  # nothing is allocated
                _called(workload, "model")
        elif not _is_too_large(workload):
            check_values(workload)
    except NotAWorkload as error:
        if not (os.environ.get("SCALECARD_PACKAGES_IN_IMAGE") and lacks_a_package(workload, error.__cause__)):
            raise


def _is_too_large(workload: Workload) -> bool:
    """Whether the host can hardly train the model, which is then looked at where it is measured."""
    try:
        with torch.device("meta"):
            size = sum(parameter.nbytes for parameter in workload.call("model").parameters())
    except Exception:  # of a file whose model cannot be made without data
        return False
    return bool(ROOM * size > psutil.virtual_memory().available)


def check_values(workload: Workload) -> None:
    """NotAWorkload if what the functions return cannot be trained: on the CPU, with two samples."""
    model = _called(workload, "model")
    _require(isinstance(model, nn.Module), workload, "model() returns", model, "return a torch.nn.Module")
    if any(hasattr(module, "_orig_mod") for module in model.modules()):
        raise NotAWorkload(workload, f"model() {COMPILED}")
    if not trainable(model):
        raise NotAWorkload(workload, "model() has no parameter that requires a gradient: there is nothing to train")
    if is_on_meta(model):
        with naming_errors(workload, "initialising model()"):
            model = materialised(model, workload.seed, HOST)
    batch = _called(workload, "batch", 2, workload.seed)
    is_pair = isinstance(batch, tuple) and len(batch) == 2
    _require(is_pair, workload, "batch(2, seed) returns", batch, "return (inputs, targets)")
    for part, tree in zip(("inputs", "targets"), batch, strict=True):
        found = list(leaves(tree))
        if not found:
            raise NotAWorkload(workload, f"batch(2, seed): no tensor in the {part}")
        for odd in (leaf for leaf in found if leaf.dim() == 0 or len(leaf) != 2):
            what = f"{part} of shape {tuple(odd.shape)}"
            raise NotAWorkload(workload, f"batch(2, seed) has {what}, which cannot be split: its rows must be samples")
    _check_step(workload, model.to(HOST), *batch)
    if problem := recipe_problem(workload, model, batch):
        raise NotAWorkload(workload, problem)
    if workload.recipe.optimizer == "own":
        _check_optimizer(workload, model)
    check_dataset(workload, batch)


def _require(met: bool, workload: Workload, what: str, found: object, wanted: str) -> None:
    if not met:
        raise NotAWorkload(workload, f"{what} a {type(found).__name__}; it must {wanted}")


def check_dataset(workload: Workload, batch: Tree) -> None:
    """NotAWorkload if samples of its data set, if it has one, do not make up such a batch of two."""
    with naming_errors(workload, "dataset()"):
        dataset = workload.dataset()
    if dataset is None:
        return
    is_map, wanted = hasattr(dataset, "__getitem__"), "return a map-style torch.utils.data.Dataset, with a length"
    _require(is_map and hasattr(dataset, "__len__"), workload, "dataset() returns", dataset, wanted)
    with naming_errors(workload, "putting together dataset()[0] and dataset()[1]"):
        made = default_collate([dataset[index] for index in range(2)])
    if not (isinstance(made, list | tuple) and len(made) == 2):
        item = type(dataset[0]).__name__
        raise NotAWorkload(workload, f"an item of dataset() is a {item}; it must be (inputs, targets)")
    for part, ours, theirs in zip(("inputs", "targets"), map(_form, made), map(_form, batch), strict=True):
        if ours != theirs:
            raise NotAWorkload(workload, f"two items of dataset() have {part} {ours}, and batch(2, seed) has {theirs}")


def _form(tree: Tree) -> str:
    """Where its tensors are, with their shapes and types; PyTorch makes lists of tuples."""
    if isinstance(tree, Tensor):
        return f"{str(tree.dtype).removeprefix('torch.')} {tuple(tree.shape)}"
    if isinstance(tree, Mapping):
        return f"{{{', '.join(f'{key}: {_form(tree[key])}' for key in sorted(tree))}}}"
    if isinstance(tree, list | tuple):
        return f"[{', '.join(map(_form, tree))}]"
    return type(tree).__name__


def _check_step(workload: Workload, model: nn.Module, inputs: Any, targets: Any) -> None:
    with naming_errors(workload, "loss(model(inputs), targets)"):
        loss = workload.module.loss(model(inputs), targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1 or loss.dim():
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise NotAWorkload(workload, f"loss(outputs, targets) returns {what}; it must return the mean, a scalar tensor")
    if not math.isfinite(float(loss.detach())):
        raise NotAWorkload(workload, f"the loss of a new model is {float(loss.detach())}; it must be finite")
    if not loss.requires_grad:
        raise NotAWorkload(workload, "the loss does not depend on any parameter")
    with naming_errors(workload, "the backward of the loss"):
        loss.backward()  # where a value was changed in place, say
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if without and not workload.may_be_unused:
        shown = ", ".join(without[:5]) + (f" and {len(without) - 5} more" if len(without) > 5 else "")
        remedy = "use them, remove them, or set requires_grad_(False), or DDP would wait; of experts that get nothing"
        remedy += " of some batches write FIND_UNUSED_PARAMETERS = True in the file"
        raise NotAWorkload(workload, f"no gradient reaches {shown}; {remedy}")


def recipe_problem(workload: Workload, model: nn.Module, batch: tuple[Tree, Tree]) -> str:
    """Why a model that does not follow its recipe cannot, by the recipe's key, or ''."""
    recipe, uncalled = workload.recipe, ""
    if recipe.channels_last and (problem := recipes.lacks_images(model)):
        return f"recipe.channels_last = true: {problem}"
    if recipe.compile or workload.recomputes:
        uncalled = recipes.not_called(model, workload.wrappable_blocks(model), batch[0])
    if recipe.compile and uncalled:
        return f"recipe.compile = true: {uncalled}"
    problem = uncalled or (_cannot_keep(workload) if recipe.checkpointing == "selective" else "")
    return f"recipe.checkpointing = {recipe.checkpointing}: {problem}" if problem else ""


def _cannot_follow(workload: Workload) -> str:
    return recipe_problem(workload, workload.as_reference.network(HOST), workload.batch(2, HOST))


def _cannot_keep(workload: Workload) -> str:
    """Why what the selective form keeps cannot be used in the backward, or ''."""
    plain, (inputs, targets) = workload.with_precision("float32").uncompiled, workload.batch(2, HOST)
    try:
        plain.loss(plain.network(HOST)(inputs), targets).backward()
    except RuntimeError as error:
        return f"its backward raises {str(error).splitlines()[0]}; a kept result must not be changed in place"
    return ""


def _check_optimizer(workload: Workload, model: nn.Module) -> None:
    """Called once the backward has left gradients."""
    with naming_errors(workload, "optimizer(parameters)"):
        made = workload.module.optimizer(trainable(model))
    is_one = isinstance(made, torch.optim.Optimizer)
    _require(is_one, workload, "optimizer(parameters) returns", made, "return a torch.optim.Optimizer")
    left = {id(p) for p in trainable(model)} - {id(p) for group in made.param_groups for p in group["params"]}
    if left:
        what = f"optimizer(parameters) leaves out {len(left)} of them"
        raise NotAWorkload(workload, f"{what}, which would not be trained")
    with naming_errors(workload, "a step of its optimizer"):
        made.step()
        OptimizerSettings(0.1, "own", workload.module.optimizer).build(trainable(model))


def _called(workload: Workload, function: str, *args: Any) -> Any:
    taken = accepted(getattr(workload.module, function))
    values = (f"{key}={value!r}" for key, value in workload.given.items() if taken is None or key in taken)
    with naming_errors(workload, f"{function}({', '.join(values)})"):
        return workload.call(function, *args)


def examined(workload: Trained, device: torch.device, num_steps: int, num_devices: int) -> Trained:
    """The workload with a learning rate at which a proof can tell on up to so many devices, and with what it cannot do.

    Looked at by the first process of a run, with the precision that the device has. NotAWorkload if there is no such
    rate.
    """
    workload = workload.with_precision(recipes.precision_on(device, workload.recipe.precision))
    if workload.recipe.compile and (problem := no_compiler(device)):
        raise NotAWorkload(workload, f"recipe.compile = true: {problem}")
    if not workload.file and (problem := _cannot_follow(workload)):  # a user's was checked before
        raise NotAWorkload(workload, problem)
    name = f"examined-{workload.name}-{num_devices}"
    found = decided(name, lambda: _examined(workload, device, num_steps, num_devices))
    recipe = replace(workload.recipe, clip=found.pop("clip"))
    return replace(workload, recipe=recipe, **found)


def varies(workload: Workload) -> bool:
    """Whether batches of other seeds have other shapes than the first, beyond their rows."""
    with naming_errors(workload, "batch(2, seed)"):
        return shapes_differ(replace(workload, batch_size=2, varies=True).batches(HOST))


def by_other_recipes(
    workload: Workload, device: torch.device, precisions: Iterable[Precision], checkpointing: Iterable[Checkpointing]
) -> Iterator[tuple[Workload, str]]:
    """An examined workload by every other recipe of these, at the same learning rate; and why it cannot be, or ''."""
    others = [replace(workload, recipe=recipe) for recipe in workload.recipe.others(precisions, checkpointing)]
    draws = bool(others) and _draws_as_trained(workload)
    for other in others:
        why_not = recipes.lacks_bf16(device) if other.in_bf16 else ""
        yield replace(other, frozen=draws or _normalises_in_bf16(other)), why_not or _cannot_follow(other)


def _examined(workload: Workload, device: torch.device, num_steps: int, num_devices: int) -> dict[str, Any]:
    """What is then known of it, by the fields of Workload, and the limit of clipping."""
    progress.doing(f"{workload.name}: looking for a learning rate")
    try:
        frozen = _draws_as_trained(workload) or _normalises_in_bf16(workload)
    except NotInitialised as error:  # of a model that was too large to be looked at before
        raise NotAWorkload(workload, str(error)) from error
    workload = replace(workload, frozen=frozen)
    _check_eval_mode(workload)
    small = replace(workload, batch_size=CHECKED_EACH * num_devices, exact=True)
    for tried in ([workload, small], [workload]):
        try:
            clip = _limit(workload.recipe.clip, [one.as_reference for one in tried], device)
            plain = [replace(one, recipe=Recipe(one.recipe.optimizer, clip=clip)) for one in tried]
            lr, inexact = _rate(plain, device, num_steps), small not in tried
            no_mean = not inexact and _is_no_mean(plain[0], device)
            return {"lr": lr, "frozen": frozen, "inexact": inexact, "no_mean": no_mean, "clip": clip}
        except NotAWorkload:
            raise
        except Exception as error:  # of the user's code, or of PyTorch, in float64 or in either precision
            raised = error
    what = f"a step with {workload.batch_size} samples"
    raise NotAWorkload(workload, f"{what} raises {where_it_raised(workload, raised)}") from raised


def _check_eval_mode(workload: Workload) -> None:
    """NotAWorkload if it draws random numbers where it is proven, or has no loss there and one as it is trained."""
    proven = replace(workload.as_reference, frozen=True)
    try:
        drawn = _draws(proven)
    except Exception as error:  # of the user's code: it has worked in training mode
        said = f"{NO_LOSS}: loss(model(inputs), targets) raises {where_it_raised(workload, error)}"
        raise NotAWorkload(workload, said) from error
    if drawn:
        raise NotAWorkload(workload, DRAWS)


def _is_no_mean(small: Workload, device: torch.device) -> bool:
    """Whether the mean of the losses of shares trains another model than the loss of the whole batch."""
    each = CHECKED_EACH if small.batch_size > CHECKED_EACH else 1
    return References(device, 1).apart(small, (each,) * (small.batch_size // each)) > BEYOND_ROUNDING


def _rate(loads: Sequence[Workload], device: torch.device, num_steps: int) -> float:
    """A tenth of the largest at which plain steps of all these lower the loss, and those in float64 move far enough.

    A tenth, because other batches are trained at it as well, and because a third left so long a step of ResNet-50 that
    bfloat16's roundings alone changed its loss by a fifth of what it fell by. The first of them is the cheapest.
    """
    for rate in RATES:
        if all(_can_tell(replace(workload, lr=rate), device, num_steps) for workload in loads):
            return rate / RATE_MARGIN
    clipped = f", with recipe.clip = {loads[0].recipe.clip:g}" if loads[0].recipe.clip else ""
    raise NotAWorkload(loads[0], f"{num_steps} steps lower the loss at no learning rate from 1 to 3e-6{clipped}")


def _limit(wanted: float, loads: Sequence[Workload], device: torch.device) -> float:
    """What gradients are clipped to: as wanted or, if that clips none of a new model, half of the shortest of these.

    0, if nothing is clipped. A step of plain SGD is as long as its gradient times the rate.
    """
    if not wanted:
        return 0.0
    found = list[float]()
    for workload in loads:
        plain = replace(workload, lr=1.0, recipe=TEXTBOOKS)
        trained = plain.plain(device, (plain.batch_size,), 1, exactly=False)
        steps = (now.double() - then.double() for then, now in zip(trained.before, trained.after, strict=True))
        found.append(math.sqrt(sum(float(step.square().sum()) for step in steps)))
    return wanted if wanted < min(found) else min(found) / 2


def _can_tell(workload: Workload, device: torch.device, num_steps: int) -> bool:
    """As timed, one step is compared, and relative to itself: it may be short."""
    steps = num_steps if workload.exact else 1
    trained = workload.plain(device, (workload.batch_size,), steps, exactly=False, scored=True)
    first, last = trained.losses
    moved = largest_difference(trained.after, trained.before)
    return last < first and (3 * RATE_MARGIN * MOVED * TOLERANCE if workload.exact else 0.0) < moved < math.inf


def _normalises_in_bf16(workload: Workload) -> bool:
    """Whether batch normalisation is trained in bf16, which makes of roundings a gradient that tells nothing.

    That of a new ResNet-50 then differs from float64's by more than itself, and in eval mode by 5 %.
    """
    return workload.in_bf16 and any(isinstance(each, BATCH_NORM) for each in workload.network(META).modules())


def _draws_as_trained(workload: Workload) -> bool:
    """As dropout does."""
    return _draws(replace(workload.as_reference, frozen=False))


def _draws(workload: Workload) -> bool:
    """Whether the model draws random numbers in the mode that it is in; on the host, which can hold it."""
    model, (inputs, targets) = workload.network(HOST), workload.batch(2, HOST)
    losses = []
    for seed in range(3):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            losses.append(float(workload.loss(model(inputs), targets)))
    return len(set(losses)) > 1


Workloads = Annotated[Mapping[str, Mapping[str, Any]], Len(min_length=1)]


class OfWorkloads:
    """For a Spec with `workloads` and `seed`. NotAWorkload, as soon as it is made, if one of them is none."""

    workloads: Workloads
    seed: int

    def __post_init__(self) -> None:
        for workload in self.loads:
            check(workload)

    @property
    def loads(self) -> list[Workload]:
        """The workloads as they are timed on one device."""
        return chosen(self.workloads, self.seed)
