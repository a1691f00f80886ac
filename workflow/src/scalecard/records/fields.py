"""The types of a result's fields: their limits, and how pydantic reads and writes them."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from scalecard.records.redact import anonymous

# For every part of a file: no field may be missing or unknown, and nothing is converted. A docstring below a field
# describes it in the schema.
STRICT = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)
OPEN = STRICT | ConfigDict(extra="allow")
MOST = 10**15


@dataclass(frozen=True)
class StoredAs:
    """What pydantic reads and writes for a field whose type in Python says less."""

    type: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.type)


def complete(*later: str, **computed: Callable[[Any], bool]) -> Any:
    """A validator for a dataclass: a file has every field, even one with a default in Python.

    Files that are older than a `later` field lack it. A file also has what is `computed` from the fields, which each
    must be accepted, and is then left out.
    """

    def check(cls: Any, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name in (*(field.name for field in fields(cls)), *computed):
            if name not in data and name not in later:
                raise ValueError(f"lacks the field {name}")
        for name, accepts in computed.items():
            if not accepts(data[name]):
                raise _field_error(name, data[name], "is not what the other fields say")
        return {key: value for key, value in data.items() if key not in computed}

    method: Any = classmethod(check)
    return model_validator(mode="before")(method)


def _field_error(name: str, value: Any, what: str) -> ValidationError:
    """An error that names this field, as a type's own would."""
    error = InitErrorDetails(type=PydanticCustomError("value_error", what), loc=(name,), input=value)
    return ValidationError.from_exception_data("", [error])


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).utcoffset() is None:
        raise ValueError("has no offset from UTC")
    return text


Moment = Annotated[str, AfterValidator(_moment), Field(max_length=40, description="ISO 8601, with its offset from UTC")]


def _as_it_is(value: dict[str, Any], check: ValidatorFunctionWrapHandler) -> dict[str, Any]:
    check(value)
    return value


KeepOrder = WrapValidator(_as_it_is)  # pydantic would put the keys that are described before the others
Name = Annotated[str, Field(min_length=1, max_length=200)]
Identifier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
NonEmpty = Annotated[str, Field(min_length=1)]
# What may quote an error, without what names a host, a user or a folder: in the file, and of a file that is read.
FreeText = Annotated[str, AfterValidator(anonymous), PlainSerializer(anonymous)]
Positive = Annotated[int, Field(ge=1, le=MOST)]
Index = Annotated[int, Field(ge=0, le=10**6)]
Natural = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0, le=10**6)]
# Numbers, of which whole ones stay whole in the file.
Number = Annotated[float, StoredAs(int | float)]
NotNegative = Annotated[float, StoredAs(Natural | Annotated[float, Field(ge=0)])]
Share = Annotated[float, StoredAs(Annotated[int, Field(ge=0, le=1)] | Annotated[float, Field(ge=0, le=1)])]
