"""Monte Carlo arithmetic: the plain loop with random errors as large as the roundings of a format.

How far its loss then strays says what a format may do to it, whatever the model. Source: Parker, Monte Carlo Arithmetic
(1997); Denis, de Oliveira Castro, Petit, Verificarlo (2016).
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

# The largest relative error of one rounding: bfloat16 is rounded to nearest, TF32 may be cut off.
LARGEST_ERROR = {"bf16": 2.0**-8, "tf32": 2.0**-10}
RESULTS_TOO = ("bf16",)  # TF32 rounds the factors of a product alone, and adds up in float32


class Roundings(TorchDispatchMode):
    """Changes the factors of every product and convolution, forward and backward, as a format's roundings would.

    Each value by a random part of the largest error. In bfloat16 the results are rounded as well.
    """

    def __init__(self, rung: str, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._largest, self._results, self._seed = LARGEST_ERROR[rung], rung in RESULTS_TOO, seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function.overloadpacket not in flop_registry:
            return function(*args, **(kwargs or {}))
        out = function(*tree_map(self._rounded, args), **tree_map(self._rounded, kwargs or {}))
        return tree_map(self._rounded, out) if self._results else out

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype != torch.float32:
            return value
        if value.device not in self._generators:
            self._generators[value.device] = torch.Generator(value.device).manual_seed(self._seed)
        generator = self._generators[value.device]
        return value + value * torch.empty_like(value).uniform_(-self._largest, self._largest, generator=generator)
