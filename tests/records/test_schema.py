"""What result.schema.json describes: it is made of the types, and accepts what is saved."""

import json
from typing import Any

import jsonschema
import pytest
from fixtures.platforms import PLATFORMS, results
from scalecard.records.files import as_json, schema
from support.every_experiment import every_result
from support.projects import ROOT

SCHEMA = schema()


def test_the_published_schema_is_that_of_the_types() -> None:
    published = json.loads((ROOT / "workflow" / "schemas" / "result.schema.json").read_text())
    assert published == SCHEMA, "run `make schema`"


def test_another_reader_accepts_what_is_saved_and_refuses_what_is_altered() -> None:
    check = jsonschema.Draft202012Validator(SCHEMA)
    for result in every_result("box", gpus=2, rounds=2):
        data = json.loads(as_json(result))
        assert check.is_valid(data), list(check.iter_errors(data))[:1]
        for key in data:
            assert not check.is_valid({**data, key: []}) or key in ("warnings",), key


def test_every_field_of_the_schema_is_described() -> None:
    """To the leaf: an object lists what it has, or says what its values are."""

    def leaves(part: Any, where: str) -> None:
        if isinstance(part, dict) and part.get("type") == "object":
            assert "properties" in part or "additionalProperties" in part, where
        for key, inner in part.items() if isinstance(part, dict) else ():
            leaves(inner, f"{where}.{key}")

    leaves(SCHEMA, "$")
    told = [SCHEMA["$defs"][name]["properties"] for name in ("Environment", "GpuFacts", "Axes")]
    bare = [field for fields in told for field, part in fields.items() if not {"description", "$ref"} & set(part)]
    assert bare == []


def test_every_axis_that_an_experiment_records_is_described() -> None:
    made = [*every_result("box", gpus=2), *(result for name in PLATFORMS for result in results(name))]
    recorded = {axis for result in made for record in result.records for axis in record.case}
    of_recipes = {"checkpointing"}  # which no workload of config.yaml asks for
    assert recorded | of_recipes == set(SCHEMA["$defs"]["Axes"]["properties"])


@pytest.mark.parametrize("ends", [("host", 0), (0, "host"), (1, 0), ("host", "host")])
def test_a_copy_is_between_the_host_and_devices(ends: tuple[str | int, str | int]) -> None:
    check = jsonschema.Draft202012Validator({**SCHEMA["$defs"]["Axes"], "$defs": SCHEMA["$defs"]})
    assert check.is_valid({"source": ends[0], "target": ends[1]})
    assert not check.is_valid({"source": "device 0", "target": ends[1]})
