"""The types of a result's fields: their limits, and how pydantic reads and writes them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import CoreSchema

from scalecard.records.redact import anonymous

# Of every part of a file: no field may be missing or unknown, and nothing is converted. A docstring below a
# field describes it in the schema.
STRICT = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)
OPEN = STRICT | ConfigDict(extra="allow")
MOST = 10**15


@dataclass(frozen=True)
class InFile:
    """What pydantic reads and writes for a field whose type in Python says less."""

    type: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.type)


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).utcoffset() is None:
        raise ValueError("has no offset from UTC")
    return text


Moment = Annotated[str, AfterValidator(_moment), Field(description="ISO 8601, with its offset from UTC")]


def _as_it_is(value: dict[str, Any], check: ValidatorFunctionWrapHandler) -> dict[str, Any]:
    check(value)
    return value


InOrder = WrapValidator(_as_it_is)  # keys that are described would come before the others
Name = Annotated[str, Field(min_length=1, max_length=200)]
Identifier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Told = Annotated[str, Field(min_length=1)]
# What may quote an error, without what names a host, a user or a folder: in the file, and of a file that is read.
FreeText = Annotated[str, AfterValidator(anonymous), PlainSerializer(anonymous)]
Positive = Annotated[int, Field(ge=1, le=MOST)]
Index = Annotated[int, Field(ge=0, le=10**6)]
Natural = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=10**6)]
# Whole numbers stay whole in the file.
AsRead = Annotated[float, InFile(int | float)]
Number = Annotated[float, InFile(Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0)])]
