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
    owned = {
        prefix: {
            f"{prefix}.{name}".lstrip("."): shared
            for name, tensor in _own(module).items()
            if (shared := places[id(tensor)])[0] == (module, name)
        }
        for prefix, module in model.named_modules()
    }
    as_made = [(shared, getattr(*shared[0])) for shared in places.values()]
    for prefix, own in owned.items():
        digest = hashlib.sha256(f"{seed} {prefix}".encode()).digest()
        _initialise_one(model, own, int.from_bytes(digest[:7]), keep)
        for shared, tensor in as_made:  # init_weights() may have put another one in any module
            _put(shared, tensor)


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
    """One module's `own`: nothing of it outlives this function but what is kept.

    Whole numbers and truth values may have any value, so what has them is initialised twice, over the lowest and over
    the highest: what then differs is missing.
    """
    without_data = {name: there for name, shared in own.items() if (there := getattr(*shared[0])).is_meta}
    _run_convention(model, own, without_data, seed, lowest=True)
    found = {name: getattr(*shared[0]) for name, shared in own.items()}  # it may be another tensor now
    whole = {name: value for name, value in found.items() if name in without_data and not _has_nan(value)}
    if whole:
        _run_convention(model, own, without_data, seed, lowest=False)
    for name, value in found.items():
        unlike = name in whole and not torch.equal(value, getattr(*own[name][0]))
        if value.is_meta or unlike or (name in without_data and _has_nan(value) and bool(value.isnan().any())):
            raise NotInitialised(name)
        keep(name, value.detach())


def _run_convention(
    model: nn.Module, own: dict[str, Places], without_data: dict[str, Tensor], seed: int, *, lowest: bool
) -> None:
    for name, there in without_data.items():
        _put(own[name], _empty(there, lowest=lowest))
    if without_data:
        with torch.random.fork_rng(devices=[]), _Skip():
            torch.manual_seed(seed)
            module = next(iter(own.values()))[0][0]
            getattr(model, "init_weights", getattr(module, "reset_parameters", lambda: None))()


def _put(shared: Places, tensor: Tensor) -> None:
    for module, name in shared:
        setattr(module, name, tensor)


def _in_place_of(tensor: Tensor, value: Tensor) -> Tensor:
    """The value, as a parameter in the place of one."""
    return nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value


def _has_nan(tensor: Tensor) -> bool:
    """Whether its type does."""
    return tensor.is_floating_point() or tensor.is_complex()


def _empty(tensor: Tensor, *, lowest: bool) -> Tensor:
    """A tensor on the CPU of the same form, full of what no code initialises with or, of whole numbers, of an end."""
    form = torch.empty_like(tensor, device="cpu")
    if _has_nan(form):
        form.fill_(torch.nan)
    elif form.dtype == torch.bool:
        form.fill_(not lowest)
    else:
        ends = torch.iinfo(form.dtype)
        form.fill_(ends.min if lowest else ends.max)
    return _in_place_of(tensor, form)


def materialised(model: nn.Module, seed: int, device: torch.device) -> nn.Module:
    """The model with all of its values on a device; the host holds one module of it at a time."""
    places, tensors = _places(model), [*model.named_parameters(), *model.named_buffers()]
    values: dict[str, Tensor] = {}
    initialise(model, seed, lambda name, value: values.update({name: value.to(device)}))
    for name, tensor in tensors:
        _put(places[id(tensor)], _in_place_of(tensor, values[name]))
    return model.to(device)  # a buffer that init_weights() adds


def put_on_meta(model: nn.Module) -> nn.Module:
    """The model with all of it on meta; `to` would let modules that share a parameter have one each."""
    for shared in _places(model).values():
        tensor = getattr(*shared[0])
        _put(shared, _in_place_of(tensor, tensor.detach().to(META)))
    return model
