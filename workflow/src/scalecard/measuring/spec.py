"""The types with which experiments declare their values, and the messages about values that do not fit.

Types and ranges are pydantic's; the experiments only declare them.
"""

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal

import pydantic
from annotated_types import Len

from scalecard.measuring.rule import Rule


def _each_once(values: tuple[object, ...]) -> tuple[object, ...]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{json.dumps(value)} occurs twice; give each value once")
    return values


EachOnce = pydantic.AfterValidator(_each_once)
Positive = Annotated[int, pydantic.Field(gt=0)]
Rate = Annotated[float, pydantic.Field(gt=0)]
Sweep = Annotated[tuple[Positive, ...], Len(min_length=1), EachOnce]
Rates = Annotated[tuple[Rate, ...], Len(min_length=1), EachOnce]
Dtype = Literal["float32", "tf32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Common:
    """The values that every experiment gets in addition to those of its own block."""

    __pydantic_config__ = pydantic.ConfigDict(extra="forbid")

    devices: Positive | None
    seed: int
    dataset: Literal["auto", "fashion-mnist", "synthetic"]
    data_dir: str
    measure: Rule


def messages(name: str, spec: type, error: pydantic.ValidationError) -> Iterator[str]:
    """One line per problem: the key in config.yaml, its value, and what is accepted."""
    problems = error.errors(include_url=False)
    for problem in problems:
        path = [part for part in problem["loc"] if isinstance(part, str | int) and "[" not in str(part)]
        if problem["type"] == "too_short" and any(other["loc"][:-1] == problem["loc"] for other in problems):
            continue  # too short only because values in it are wrong
        known = [field.name for field in fields(Rule if path[:-1] == ["measure"] else spec)]
        key = ".".join(["experiments", name, *map(str, path)])
        if problem["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            yield f"{key}: unknown key; {did_you_mean(str(path[-1]), known)}"
        elif problem["type"] in ("missing", "missing_argument"):
            yield f"{key}: missing"
        else:
            value = "" if problem["type"] == "value_error" else f" = {json.dumps(problem['input'])}"
            yield f"{key}{value}: {problem['msg'].removeprefix('Value error, ')}"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint for an unknown name: the closest known one, or all of them."""
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
