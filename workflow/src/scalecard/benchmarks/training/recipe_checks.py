"""Whether a model can be trained as its recipe says: recomputed, with its images channels last, and compiled.

The host tries it with two samples, before anything is measured.
"""

from torch import nn

from scalecard.workloads import recipe as recipes
from scalecard.workloads.compiled import no_compiler
from scalecard.workloads.nested import Tree
from scalecard.workloads.recipe import IMAGES
from scalecard.workloads.workload import HOST, Workload

NO_IMAGES = "the workload has no convolutions of images"


def cannot_be_trained_so(workload: Workload, model: nn.Module, batch: tuple[Tree, Tree]) -> str:
    """What is wrong with a recipe for a model that does not follow it, by the recipe's key, or ''."""
    recipe = workload.recipe
    if recipe.channels_last and not any(weight.dim() == IMAGES for weight in model.parameters()):
        return f"recipe.channels_last = true: {NO_IMAGES}"
    if recipe.compile and (problem := _not_compiled(workload, model, batch[0])):
        return f"recipe.compile = true: {problem}"
    if workload.recomputes and (problem := _not_recomputed(workload, model, batch[0])):
        return f"recipe.checkpointing = {recipe.checkpointing}: {problem}"
    return ""


def _not_compiled(workload: Workload, model: nn.Module, inputs: Tree) -> str:
    return no_compiler(HOST) or _not_called(workload, model, inputs)


def _not_called(workload: Workload, model: nn.Module, inputs: Tree) -> str:
    problem = recipes.not_called(model, workload.wrappable_blocks(model), inputs)
    return f"{problem}; blocks(model) must return modules that it calls, not new ones" if problem else ""


def _not_recomputed(workload: Workload, model: nn.Module, inputs: Tree) -> str:
    """Why its blocks cannot be, or ''."""
    problem = _not_called(workload, model, inputs)
    return problem or (_cannot_keep(workload) if workload.recipe.checkpointing == "selective" else "")


def _cannot_keep(workload: Workload) -> str:
    """Why what the selective form keeps cannot be used in the backward, or ''."""
    plain, (inputs, targets) = workload.with_precision("float32").uncompiled, workload.batch(2, HOST)
    try:
        plain.loss(plain.network(HOST)(inputs), targets).backward()
    except RuntimeError as error:
        return f"its backward raises {str(error).splitlines()[0]}; a kept result must not be changed in place"
    return ""
