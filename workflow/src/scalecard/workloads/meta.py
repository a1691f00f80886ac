"""Models without data, on the meta device: initialised a module at a time, with the same values on all ranks.

PyTorch's convention for such a model is `model.to_empty(device=...)`, and then `model.init_weights()` or, if it has
none, `reset_parameters()` of each module. Here it runs once for each module, while all others are on meta, where
whatever they are filled with costs nothing:

    for each module:  its tensors empty on the CPU  ->  seed of (workload, module)  ->  the convention  ->  keep, free

So the host holds one module's tensors at a time, and no value depends on who keeps which part of it.
"""

import hashlib
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

META = torch.device("meta")
FILLS = ("zero_", "fill_", "copy_", "normal_", "uniform_", "mul_", "add_", "div_", "erfinv_", "clamp_")
Places = list[tuple[nn.Module, str]]  # the modules that share a parameter or buffer, and its name in each


class _Skip(TorchFunctionMode):
    """Leaves out what fills a tensor without data: PyTorch takes 0.4 ms to fill one with nothing at random."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        filled = args[0] if args else (kwargs or {}).get("tensor")
        fills = func.__name__ in FILLS or getattr(func, "__module__", "") == nn.init.__name__
        return filled if fills and isinstance(filled, Tensor) and filled.is_meta else func(*args, **(kwargs or {}))


class NotInitialised(ValueError):
    """A parameter or buffer on the meta device that the model's own code gives no value."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"nothing initialises {name}, which model() leaves on the meta device: init_weights() of the model or, if "
            "it has none, reset_parameters() of each module that has parameters or buffers must set all of its values"
        )


def is_on_meta(model: nn.Module) -> bool:
    """Whether any of its parameters or buffers has no data."""
    return any(tensor.is_meta for tensor in chain(model.parameters(), model.buffers()))


def initialise(model: nn.Module, seed: int, keep: Callable[[str, Tensor], None]) -> None:
    """Give every parameter and buffer to `keep`, by its name, as model() made it or initialised on the CPU.

    The model stays on meta. NotInitialised names what nothing initialises; what init_weights() raises passes through.
    """
    places = _places(model)
    for prefix, module in model.named_modules():
        own = {
            f"{prefix}.{name}".lstrip("."): shared
            for name, tensor in _own(module).items()
            if (shared := places[id(tensor)])[0] == (module, name)
        }
        digest = hashlib.sha256(f"{seed} {prefix}".encode()).digest()
        _initialise_one(model, own, int.from_bytes(digest[:7]), keep)


def _own(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}


def _places(model: nn.Module) -> dict[int, Places]:
    places: dict[int, Places] = {}
    for module in model.modules():
        for name, tensor in _own(module).items():
            places.setdefault(id(tensor), []).append((module, name))
    return places


@torch.no_grad()
def _initialise_one(model: nn.Module, own: dict[str, Places], seed: int, keep: Callable[[str, Tensor], None]) -> None:
    """One module's `own`: nothing of it outlives this function but what is kept."""
    without_data = {name: there for name, shared in own.items() if (there := getattr(*shared[0])).is_meta}
    for name, there in without_data.items():
        _put(own[name], _empty(there))
    if without_data:
        with torch.random.fork_rng(devices=[]), _Skip():
            torch.manual_seed(seed)
            module = next(iter(own.values()))[0][0]
            getattr(model, "init_weights", getattr(module, "reset_parameters", lambda: None))()
    for name, shared in own.items():
        value = getattr(*shared[0])  # it may be another tensor now
        if name in without_data and _is_missing(value):
            raise NotInitialised(name)
        keep(name, value.detach())
    for name, there in without_data.items():
        _put(own[name], there)


def _put(shared: Places, tensor: Tensor) -> None:
    for module, name in shared:
        setattr(module, name, tensor)


def _empty(tensor: Tensor) -> Tensor:
    """A tensor on the CPU of the same form, full of what no code initialises with, but for truth values."""
    form = torch.empty_like(tensor, device="cpu")
    if form.is_floating_point() or form.is_complex():
        form.fill_(torch.nan)
    elif form.dtype != torch.bool:
        form.fill_(torch.iinfo(form.dtype).min)
    return nn.Parameter(form, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else form


def _is_missing(tensor: Tensor) -> bool:
    """Whether a value is on meta, or still what it was filled with."""
    if tensor.is_meta or tensor.dtype == torch.bool:
        return tensor.is_meta
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(tensor.isnan().any())
    return bool((tensor == torch.iinfo(tensor.dtype).min).any())


def materialised(model: nn.Module, seed: int, device: torch.device) -> nn.Module:
    """The model with all of its values on a device; the host holds one module of it at a time."""
    places, tensors = _places(model), [*model.named_parameters(), *model.named_buffers()]
    values: dict[str, Tensor] = {}
    initialise(model, seed, lambda name, value: values.update({name: value.to(device)}))
    for name, tensor in tensors:
        is_parameter = isinstance(tensor, nn.Parameter)
        here = nn.Parameter(values[name], tensor.requires_grad) if is_parameter else values[name]
        _put(places[id(tensor)], here)
    return model.to(device)  # a buffer that init_weights() adds


def put_on_meta(model: nn.Module) -> nn.Module:
    """The model with all of it on meta; `to` would let modules that share a parameter have one each."""
    for shared in _places(model).values():
        tensor = getattr(*shared[0])
        there = tensor.detach().to(META)
        _put(shared, nn.Parameter(there, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else there)
    return model
