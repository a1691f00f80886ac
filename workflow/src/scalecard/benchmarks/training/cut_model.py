"""A model cut into stages: its blocks, and where to cut them so that the stages do equally much."""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from scalecard.benchmarks.training.strategy import CannotBe
from scalecard.measuring.counting import flops
from scalecard.workloads.nested import Tree
from scalecard.workloads.reference import trainable
from scalecard.workloads.stage_cuts import Cuts, balanced, stages
from scalecard.workloads.workload import HOST, Load


def cut(load: Load, num_stages: int) -> tuple[nn.Module, list[nn.Module]]:
    """The model, and the same in stages of consecutive blocks, whose largest has as few operations as possible.

    It is built on the host, since one device may not hold all of it. CannotBe says why it cannot be cut.
    """
    model = load.network(HOST)
    blocks = blocks_of(load, model)
    if len(blocks) < num_stages:
        raise CannotBe(f"{len(blocks)} blocks do not make {num_stages} stages")
    ends = cuts(replace(load, batch_size=1), num_stages)
    made: list[nn.Module] = [nn.Sequential(*(blocks[index] for index in span)) for span in stages(len(blocks), ends)]
    if not all(trainable(stage) for stage in made):
        raise CannotBe(f"cut into {num_stages} stages, one of them has no parameter that is trained")
    return model, made


def blocks_of(load: Load, model: nn.Module) -> list[nn.Module]:
    """The workload's own blocks or, without blocks(model), the model's children; CannotBe if they are not the model."""
    given = hasattr(load.module, "blocks")
    blocks = list(load.module.blocks(model)) if given else list(model.children())
    owned = [id(parameter) for block in blocks for parameter in block.parameters()]
    if len(owned) != len(set(owned)):
        raise CannotBe("two of its blocks share a parameter")
    if set(owned) != {id(parameter) for parameter in model.parameters()}:
        raise CannotBe(f"{'blocks(model) does' if given else 'its children do'} not have all of its parameters")
    return blocks


@functools.cache
def calls_each_once(load: Load) -> bool:
    """Whether a forward calls every block once: the parameters of one that is called twice are gathered twice."""
    model, called = load.network(HOST).eval(), Counter[int]()
    blocks = blocks_of(load, model)
    for number, block in enumerate(blocks):
        block.register_forward_pre_hook(lambda *_, number=number: called.update([number]))
    with torch.no_grad():
        model(load.batch(1, HOST)[0])
    return all(called[number] == 1 for number in range(len(blocks)))


@functools.cache
def cuts(load: Load, num_stages: int) -> Cuts:
    """The blocks with which stages begin, by the operations that one sample takes in each."""
    return balanced(_operations(load), num_stages)


@functools.cache
def _operations(load: Load) -> list[float]:
    """FLOPs of one sample's forward in each block, on the CPU; CannotBe if the blocks together are not the model.

    Every block counts at least a little, so that blocks without products are divided as well.
    """
    model = load.network(HOST).eval()
    inputs, _ = load.batch(1, HOST)
    value, counted = inputs, []
    try:
        for block in blocks_of(load, model):  # with gradients, or PyTorch fuses what it then does not count
            passed = _Kept(block, value)
            counted.append(flops(passed))
            value = passed.output
        whole = model(inputs)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CannotBe(_unlike(load, f": {type(error).__name__}: {str(error).splitlines()[0]}")) from error
    if not (isinstance(value, Tensor) and isinstance(whole, Tensor) and value.shape == whole.shape):
        raise CannotBe(_unlike(load, ""))
    if not torch.allclose(value, whole):
        raise CannotBe(_unlike(load, ""))
    return [max(one, 1e-3 * sum(counted) / len(counted)) for one in counted]


def _unlike(load: Load, why: str) -> str:
    blocks = "blocks(model)" if hasattr(load.module, "blocks") else "its children (it has no blocks(model))"
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


def crossing(load: Load, num_stages: int, sizes: tuple[int, ...]) -> int:
    """Bytes of what is handed from stage to stage in one forward of micro-batches of these sizes."""
    return sum(handed_over(load, num_stages)) * sum(sizes)


@functools.cache
def handed_over(load: Load, num_stages: int) -> tuple[int, ...]:
    """Bytes of one sample that each stage but the last hands to the next one in a forward."""
    _, modules = cut(load, num_stages)
    return tuple(leaf.nbytes for leaf in _handed_over(modules, load.batch(1, HOST)[0]))


def _handed_over(modules: Sequence[nn.Module], value: Tree) -> Iterator[Tensor]:
    with torch.no_grad():
        for module in modules[:-1]:
            value = module.eval()(value)
            yield value
