"""What result.schema.json describes, and that its two readers agree, on results that are right and on altered ones."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import jsonschema
import pytest
from fixtures.platforms import PLATFORMS, results
from scalecard.records.files import SCHEMA, as_json
from support.every_experiment import every_result

RESULTS = [json.loads(as_json(result)) for result in every_result("box", gpus=2, rounds=2)]
ODD: list[Any] = [None, True, 0, -1, 1.0, 1.5, 1e300, "", "x" * 999, [], {}, [1], {"a": 1}]


def altered(data: Any, draw: random.Random) -> None:
    """Another value somewhere, or one less."""
    while isinstance(data, dict | list) and data:
        key = draw.choice(list(data)) if isinstance(data, dict) else draw.randrange(len(data))
        if not isinstance(data[key], dict | list) or draw.random() < 0.1:
            if draw.random() < 0.2:
                del data[key]
            else:
                data[key] = draw.choice(ODD)
            return
        data = data[key]


def accepted(check: Callable[[Any], Any], data: Any) -> bool:
    try:
        check(data)
    except fastjsonschema.JsonSchemaValueException:
        return False
    return True


def test_both_readers_agree() -> None:
    schema, draw = json.loads(SCHEMA.read_text()), random.Random(1)
    quick, slow = fastjsonschema.compile(schema), jsonschema.Draft202012Validator(schema)
    verdicts = []
    for number in range(120):
        data = {**RESULTS[number % len(RESULTS)]}
        data = json.loads(json.dumps({**data, "records": data["records"][:2]}))
        altered(data, draw)
        verdicts.append(accepted(quick, data))
        assert verdicts[-1] == slow.is_valid(data), data
    assert set(verdicts) == {True, False}


def test_every_part_of_the_schema_is_described_or_referred_to() -> None:
    """To the leaf: an object lists what it has, or says what its values are."""

    def leaves(part: Any, where: str) -> None:
        if isinstance(part, dict) and part.get("type") == "object":
            assert "properties" in part or "additionalProperties" in part or where.endswith("measure"), where
        for key, inner in part.items() if isinstance(part, dict) else ():
            leaves(inner, f"{where}.{key}")

    leaves(json.loads(Path(SCHEMA).read_text()), "$")


def test_every_axis_that_an_experiment_records_is_described() -> None:
    described = json.loads(SCHEMA.read_text())["$defs"]["case"]["properties"]
    made = [*every_result("box", gpus=2), *(result for name in PLATFORMS for result in results(name))]
    assert {axis for result in made for record in result.records for axis in record.case} == set(described)


@pytest.mark.parametrize("ends", [("host", 0), (0, "host"), (1, 0), ("host", "host")])
def test_a_copy_is_between_the_host_and_devices(ends: tuple[str | int, str | int]) -> None:
    schema = json.loads(SCHEMA.read_text())
    check = fastjsonschema.compile({**schema["$defs"]["case"], "$defs": schema["$defs"]})
    assert accepted(check, {"source": ends[0], "target": ends[1]})
    assert not accepted(check, {"source": "device 0", "target": ends[1]})
