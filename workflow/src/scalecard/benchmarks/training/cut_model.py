"""A workload cut into stages: its blocks, where to cut them so that the stages do equally much, and each by itself."""

import copy
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from scalecard.benchmarks.training.reference_cache import Setting
from scalecard.benchmarks.training.strategy import CannotBe
from scalecard.measuring.counting import flops
from scalecard.parallel.model_parallel import Given
from scalecard.workloads.nested import Tree, mapped
from scalecard.workloads.reference import trainable
from scalecard.workloads.stage_cuts import Cuts, balanced, stages
from scalecard.workloads.workload import HOST, Workload


def cut(workload: Workload, cuts: Cuts) -> tuple[nn.Module, list[nn.Module]]:
    """The model, and the same in stages that begin with the first block and with those of `cuts`.

    It is built on the host, since one device may not hold all of it. CannotBe says why it cannot be cut.
    """
    model = workload.network(HOST)
    blocks = blocks_of(workload, model)
    made: list[nn.Module] = [nn.Sequential(*(blocks[index] for index in span)) for span in stages(len(blocks), cuts)]
    if not all(trainable(stage) for stage in made):
        raise CannotBe(f"cut into {len(made)} stages, one of them has no parameter that is trained")
    return model, made


def blocks_of(workload: Workload, model: nn.Module) -> list[nn.Module]:
    """The workload's own blocks or, without blocks(model), the model's children; CannotBe if they are not the model."""
    given = hasattr(workload.module, "blocks")
    blocks = list(workload.module.blocks(model)) if given else list(model.children())
    owned = [id(parameter) for block in blocks for parameter in block.parameters()]
    if len(owned) != len(set(owned)):
        raise CannotBe("two of its blocks share a parameter")
    if set(owned) != {id(parameter) for parameter in model.parameters()}:
        raise CannotBe(f"{'blocks(model) does' if given else 'its children do'} not have all of its parameters")
    return blocks


@functools.cache
def calls_each_once(workload: Workload) -> bool:
    """Whether a forward calls every block once: the parameters of one that is called twice are gathered twice."""
    model, called = workload.network(HOST).eval(), Counter[int]()
    blocks = blocks_of(workload, model)
    for number, block in enumerate(blocks):
        block.register_forward_pre_hook(lambda *_, number=number: called.update([number]))
    with torch.no_grad():
        model(workload.batch(1, HOST)[0])
    return all(called[number] == 1 for number in range(len(blocks)))


def cuts_at(at: Setting, num_stages: int) -> Cuts:
    """Where a model is cut at a setting: as it says or, if it says nothing, into so many balanced stages."""
    return at.cuts or balanced_cuts(at.workload, num_stages)


def balanced_cuts(workload: Workload, num_stages: int) -> Cuts:
    """Cuts into so many stages whose largest has as few operations as possible; CannotBe if there are fewer blocks."""
    operations = _operations(replace(workload, batch_size=1))
    if len(operations) < num_stages:
        raise CannotBe(f"{len(operations)} blocks do not make {num_stages} stages")
    return balanced(operations, num_stages)


@functools.cache
def _operations(workload: Workload) -> list[float]:
    """FLOPs of one sample's forward in each block, on the CPU; CannotBe if the blocks together are not the model.

    Every block counts at least a little, so that blocks without products are divided as well.
    """
    model = workload.network(HOST).eval()
    inputs, _ = workload.batch(1, HOST)
    blocks, value, counted = blocks_of(workload, model), inputs, []
    try:
        for block in blocks:  # with gradients, or PyTorch fuses what it then does not count
            passed = _Kept(block, value)
            counted.append(flops(passed))
            value = passed.output
        whole = model(inputs)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CannotBe(_unlike(workload, f": {type(error).__name__}: {str(error).splitlines()[0]}")) from error
    if not (isinstance(value, Tensor) and isinstance(whole, Tensor) and value.shape == whole.shape):
        raise CannotBe(_unlike(workload, ""))
    if not torch.allclose(value, whole):
        raise CannotBe(_unlike(workload, ""))
    return [max(one, 1e-3 * sum(counted) / len(counted)) for one in counted]


def _unlike(workload: Workload, why: str) -> str:
    blocks = "blocks(model)" if hasattr(workload.module, "blocks") else "its children (it has no blocks(model))"
    return f"{blocks}, one after another, do not compute what the model does{why}"


class _Kept:
    """A forward that keeps its output; between blocks, a single tensor is handed over."""

    def __init__(self, block: nn.Module, value: Tree) -> None:
        self.block, self.value, self.output = block, value, value

    def __call__(self) -> object:
        self.output = self.block(self.value)
        if not isinstance(self.output, Tensor):
            raise TypeError(f"a block returns a {type(self.output).__name__}, not one tensor")
        return self.output


def crossing(workload: Workload, cuts: Cuts, sizes: tuple[int, ...]) -> int:
    """Bytes of what is handed from stage to stage in one forward of micro-batches of these sizes."""
    return sum(_handed_over(replace(workload, batch_size=1), cuts)) * sum(sizes)


@functools.cache
def _handed_over(workload: Workload, cuts: Cuts) -> tuple[int, ...]:
    """Bytes of one sample that each stage but the last hands to the next one in a forward."""
    _, modules = cut(workload, cuts)
    value, found = workload.batch(1, HOST)[0], []
    with torch.no_grad():
        for module in modules[:-1]:
            value = module.eval()(value)
            found.append(value.nbytes)
    return tuple(found)


@dataclass(frozen=True)
class CutWorkload:
    """A workload in stages that begin with the first block and with those of `cuts`, and one batch of it.

    The loss is the last stage's work. In a trial, nothing is `counting`.
    """

    workload: Workload
    cuts: Cuts
    counting: bool = True

    @property
    def num_stages(self) -> int:
        """How many devices it takes."""
        return len(self.cuts) + 1

    def of_size(self, batch_size: int) -> "CutWorkload":
        """The same with another batch."""
        return replace(self, workload=replace(self.workload, batch_size=batch_size))

    def stage(self, index: int) -> nn.Module:
        """A copy of one of the stages, in the host's memory."""
        return copy.deepcopy(_stages(replace(self.workload, batch_size=1), self.cuts)[index])

    def given(self, device: torch.device) -> list[Given]:
        """What each stage gets, computed on a device and kept on the host: the device's memory is for what is timed."""
        value, targets = self.workload.batch(self.workload.batch_size, device)
        found = [_on_host(value)]
        for stage in range(self.num_stages - 1):
            with torch.no_grad():
                value = self.stage(stage).to(device)(value)
            found.append(_on_host(value))
        *first, last = found
        return [*map(Given, first), Given(last, _on_host(targets), self.workload.loss)]

    def plain_step(self, stage: int, device: torch.device) -> Callable[[], object] | None:
        """A forward and backward of one stage as it is timed; None if its operations are not counted."""
        if not self.counting:
            return None
        module, values = self.stage(stage).to(device).train(), given(self, device)[stage].to(device)
        if stage:
            values.inputs.requires_grad_()
        return lambda: values.through(module).sum().backward()

    def crossing(self, stage: int) -> int:
        """Bytes that a stage hands to the next one in a forward of the batch."""
        return self.workload.batch_size * _handed_over(replace(self.workload, batch_size=1), self.cuts)[stage]


@functools.lru_cache(maxsize=2)
def given(workload: CutWorkload, device: torch.device) -> Sequence[Given]:
    """What each stage gets, computed once for stages that are built one after another."""
    return workload.given(device)


@functools.lru_cache(maxsize=2)
def _stages(workload: Workload, cuts: Cuts) -> list[nn.Module]:
    """Those that are copied: the exact ones and those as timed, which are built in turns."""
    return cut(workload, cuts)[1]


def _on_host(tree: Tree) -> Tree:
    return mapped(partial(torch.Tensor.to, device=HOST), tree)
