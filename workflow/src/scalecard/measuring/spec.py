"""The types with which experiments declare their values, and the messages about values that do not fit.

Types and ranges are pydantic's; the experiments only declare them. The upper bounds are beyond what any machine can
measure, and below what overflows: a float32 matrix of MOST x MOST takes 40 GB, the images of a batch of MOST such
images number fewer bytes than 2**63, and no image of Fashion-MNIST is the 100,000th.
"""

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeVar

import pydantic
from annotated_types import Len

from scalecard.measuring.stopping_rule import Rule


def _each_once(values: tuple[object, ...]) -> tuple[object, ...]:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{json.dumps(value)} occurs twice; give each value once")
    return values


MOST = 100_000
MOST_BYTES = 2**40  # no device has as much memory
MOST_VALUES = 1_000  # in a sweep; each is measured for seconds
LARGEST_SEED = 2**63 - 100_001  # a rank adds its number, and torch takes 64 bits
SHOWN = 100  # letters of a value in a message

T = TypeVar("T")
EachOnce = pydantic.AfterValidator(_each_once)
Distinct = Annotated[tuple[T, ...], Len(max_length=MOST_VALUES), EachOnce]
Several = Annotated[tuple[T, ...], Len(min_length=1, max_length=MOST_VALUES), EachOnce]
Positive = Annotated[int, pydantic.Field(gt=0, le=MOST)]
AtLeastTwo = Annotated[int, pydantic.Field(ge=2, le=MOST_VALUES)]
Rate = Annotated[float, pydantic.Field(gt=0, le=100, allow_inf_nan=False)]
Sweep = Several[Positive]
ByteSizes = Several[Annotated[int, pydantic.Field(gt=0, le=MOST_BYTES)]]
Dtype = Literal["float32", "tf32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Common:
    """The values that every experiment gets in addition to those of its own block."""

    __pydantic_config__ = pydantic.ConfigDict(extra="forbid")

    devices: Positive | None
    seed: Annotated[int, pydantic.Field(ge=0, le=LARGEST_SEED)]
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
        key = ".".join(["experiments", name, *map(str, path)])
        if problem["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            *outer, unknown = map(str, problem["loc"])
            known = [field.name for field in fields(Rule if outer == ["measure"] else spec)]
            yield f"{'.'.join(['experiments', name, *outer, unknown])}: unknown key; {did_you_mean(unknown, known)}"
        elif problem["type"] in ("missing", "missing_argument"):
            yield f"{key}: missing"
        else:
            value = "" if problem["type"] == "value_error" else f" = {shortened(problem['input'])}"
            yield f"{key}{value}: {problem['msg'].removeprefix('Value error, ')}"


def shortened(value: object) -> str:
    """A value as JSON, cut where it is too long for a message."""
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint for an unknown name: the closest known one, or all of them."""
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
