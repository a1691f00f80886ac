"""Whether a value matches a JSON Schema, compiled once into functions: some thirty times as fast as jsonschema.

A report of many platforms reads hundreds of results, nearly all of them right. For one that is not, jsonschema says
why. Only the keywords that result.schema.json uses are known; another one is an error when it is compiled.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

Test = Callable[[Any], bool]
Schema = Mapping[str, Any]

ANNOTATIONS = {"$schema", "$defs", "title", "description"}
TYPES: dict[str, Test] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}
# What a keyword asks of the values of its type; values of other types match.
OF_TEXT: dict[str, Callable[[Any], Test]] = {
    "minLength": lambda least: lambda text: len(text) >= least,
    "maxLength": lambda most: lambda text: len(text) <= most,
    "pattern": lambda pattern: lambda text: re.search(pattern, text) is not None,
}
OF_NUMBERS: dict[str, Callable[[Any], Test]] = {
    "minimum": lambda least: lambda number: number >= least,
    "maximum": lambda most: lambda number: number <= most,
    "exclusiveMinimum": lambda least: lambda number: number > least,
}
OF_ARRAYS: dict[str, Callable[[Any], Test]] = {
    "minItems": lambda least: lambda items: len(items) >= least,
    "maxItems": lambda most: lambda items: len(items) <= most,
}
OF_TYPES = {"string": OF_TEXT, "number": OF_NUMBERS, "array": OF_ARRAYS}


def compiled(schema: Schema) -> Test:
    """A function that says whether a value matches; ValueError for a keyword that is not known here."""
    return _Compiler(schema.get("$defs", {})).test(schema)


class _Compiler:
    def __init__(self, definitions: Schema) -> None:
        self.definitions = definitions
        self.known: dict[str, Test] = {}

    def test(self, schema: Schema | bool) -> Test:
        """The conjunction of what the keywords ask for."""
        if isinstance(schema, bool):
            return lambda value: schema
        parts = list(filter(None, (self._keyword(key, schema) for key in schema if key not in ANNOTATIONS)))
        return _all(parts)

    def _keyword(self, key: str, schema: Schema) -> Test | None:
        for name, keywords in OF_TYPES.items():
            if key in keywords:
                is_one, holds = TYPES[name], keywords[key](schema[key])
                return lambda value: not is_one(value) or holds(value)
        build = getattr(self, f"_{key.lstrip('$')}", None)
        if build is None:
            raise ValueError(f"{key}: not a keyword that is known here")
        test: Test | None = build(schema)
        return test

    def _type(self, schema: Schema) -> Test:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        tests = [TYPES[name] for name in names]
        return tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)

    def _enum(self, schema: Schema) -> Test:
        return lambda value: isinstance(value, str) and value in schema["enum"]

    def _const(self, schema: Schema) -> Test:
        wanted = schema["const"]
        return lambda value: value == wanted and isinstance(value, bool) == isinstance(wanted, bool)

    def _ref(self, schema: Schema) -> Test:
        name = schema["$ref"].removeprefix("#/$defs/")
        if name not in self.known:
            self.known[name] = self.test(self.definitions[name])
        return self.known[name]

    def _required(self, schema: Schema) -> Test:
        wanted = set(schema["required"])
        return lambda value: not isinstance(value, dict) or wanted <= value.keys()

    def _properties(self, schema: Schema) -> Test:
        """With additionalProperties, which are those that are not listed."""
        own = {key: self.test(part) for key, part in schema["properties"].items()}
        other = self.test(schema.get("additionalProperties", True))

        def holds(value: Any) -> bool:
            if isinstance(value, dict):
                for key, part in value.items():
                    if not (own.get(key) or other)(part):
                        return False
            return True

        return holds

    def _additionalProperties(self, schema: Schema) -> Test | None:  # noqa: N802
        return None if "properties" in schema else self._properties({**schema, "properties": {}})

    def _propertyNames(self, schema: Schema) -> Test:  # noqa: N802
        test = self.test(schema["propertyNames"])
        return lambda value: not isinstance(value, dict) or all(map(test, value))

    def _items(self, schema: Schema) -> Test:
        test, of_numbers = self.test(schema["items"]), schema["items"].keys() <= {"type", "description", *OF_NUMBERS}
        return lambda value: not isinstance(value, list) or all(map(test, _extremes(value) if of_numbers else value))

    def _oneOf(self, schema: Schema) -> Test:  # noqa: N802
        tests = [self.test(part) for part in schema["oneOf"]]
        return lambda value: sum(test(value) for test in tests) == 1

    def _allOf(self, schema: Schema) -> Test:  # noqa: N802
        return _all([self.test(part) for part in schema["allOf"]])

    def _if(self, schema: Schema) -> Test:
        condition, then, other = (self.test(schema.get(key, True)) for key in ("if", "then", "else"))
        return lambda value: then(value) if condition(value) else other(value)

    def _then(self, schema: Schema) -> None:
        """Part of `if`."""

    _else = _then


def _all(tests: list[Test]) -> Test:
    """The conjunction. Loops here and above, because all() of a generator takes twice as long."""

    def holds(value: Any) -> bool:
        for test in tests:  # noqa: SIM110
            if not test(value):
                return False
        return True

    return tests[0] if len(tests) == 1 else holds


def _extremes(values: list[Any]) -> list[Any]:
    """Of samples, which are most of a result, the extremes tell of all; none of them is NaN (strict_json.py)."""
    return [min(values), max(values)] if set(map(type, values)) == {float} else values
