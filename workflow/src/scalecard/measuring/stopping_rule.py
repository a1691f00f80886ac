"""How long a measurement warms up and when it stops: the `measure` block of config.yaml."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

WEEK = 7 * 24 * 3600  # nobody waits longer for one case
Count = Annotated[int, Field(ge=2, le=1_000_000)]
Seconds = Annotated[float, Field(ge=0, le=WEEK, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The values of config.yaml's `measure`; ValueError names the key and value that are not allowed."""

    warmup_seconds: Seconds
    block_seconds: Seconds
    min_rounds: Count
    max_rounds: Count
    min_seconds: Seconds
    max_seconds: Annotated[Seconds, Field(gt=0)]
    processes: Annotated[int, Field(ge=1, le=100)]
    precision: Annotated[float, Field(gt=0, lt=1)]

    def __post_init__(self) -> None:
        if self.max_rounds < self.min_rounds:
            raise ValueError(f"measure.max_rounds = {self.max_rounds}: must be at least min_rounds = {self.min_rounds}")
