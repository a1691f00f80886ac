"""The types of a result's fields: their limits, how pydantic reads and writes them, and what free text must not name.

Results and reports get published, and notes and warnings quote errors of the system and of libraries, which name paths,
hosts and addresses.
"""

import functools
import getpass
import ipaddress
import os
import platform
import re
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

# For every part of a file: no field may be missing or unknown, and nothing is converted. A docstring below a field
# describes it in the schema.
STRICT = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)
OPEN = STRICT | ConfigDict(extra="allow")
MOST = 10**15
TELL_NOTHING = {"localhost", "root", "user"}
URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)
# An absolute path, but not 'samples/s' or 'results/x'. What the kernel names (/dev, /proc, /sys) is alike everywhere.
PATH = re.compile(r"(?<![\w.\]~/-])(?:~\w*|[A-Za-z]:)?/(?!/|dev/|proc/|sys/)[\w.@+~-][^\s'\",;:()<>|]*")
QUOTED_PATH = re.compile(r"(['\"])(?:~\w*)?/(?!/|dev/|proc/|sys/)[^'\"]+\1")
IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)")
IPV6 = re.compile(r"(?<![\w.:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5,}[0-9A-Fa-f]{2}(?![\w:])")
# As torch and its rendezvous name the other end: '(node17, 29500)' and 'node17:29500', but not 'Backend.cpp:1234'.
ENDPOINTS = (
    re.compile(r"(?<=\()[\w.-]+(?=, \d{4,5}\))"),
    re.compile(r"(?<![\w.-])(?![\w.-]*\.(?:py|cpp|cu|cc|hpp|h|c):)[A-Za-z][\w.-]*(?=:\d{4,5}\b)"),
)


def anonymous(text: str) -> str:
    """One line of text without absolute paths, addresses, host names or this user's name."""
    text = " ".join(text.split())
    text = PATH.sub("[path]", QUOTED_PATH.sub(r"\1[path]\1", URL.sub("[address]", text)))
    for address in (IPV4, IPV6):
        text = address.sub(_hidden_address, text)
    text = MAC.sub("[address]", text)
    for endpoint in ENDPOINTS:
        text = endpoint.sub("[host]", text)
    for word, names in (("[host]", _hosts()), ("[user]", _user())):
        text = names.sub(word, text) if names else text
    return text


def without_paths(value: Any) -> Any:
    """Settings, whatever they are nested in, without absolute paths."""
    if isinstance(value, dict):
        return {key: without_paths(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(part) for part in value]
    return PATH.sub("[path]", value) if isinstance(value, str) else value


def _hidden_address(found: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(found[0])
    except ValueError:
        return found[0]
    return "[address]"


@functools.cache
def _hosts() -> re.Pattern[str] | None:
    """This host, with or without its domain, and the nodes of a Slurm job: 'gpu[01-04],login' is gpu01 and so on."""
    names = [platform.node(), platform.node().partition(".")[0]]
    listed = re.sub(r"\[[^\]]*\]", "[]", os.environ.get("SLURM_JOB_NODELIST", "")).split(",")
    return _any_of([*names, *filter(None, listed)])


@functools.cache
def _user() -> re.Pattern[str] | None:
    try:
        return _any_of([getpass.getuser()])
    except (KeyError, OSError):  # a user without a name, as in a container
        return None


def _any_of(names: list[str]) -> re.Pattern[str] | None:
    """Whole words; '[]' stands for a number, and what is too short to be told from a word of the text is left."""
    known = sorted({name for name in names if len(name) > 2 and name not in TELL_NOTHING}, key=len, reverse=True)
    words = "|".join(re.escape(name).replace(r"\[\]", r"\d+") for name in known)
    return re.compile(rf"(?<![\w.-])(?:{words})(?:\.[\w-]+)*(?![\w-])") if words else None


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
