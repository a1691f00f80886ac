"""What every experiment has: one name everywhere, a Spec without defaults, a docstring, and a section in the report."""

import dataclasses

import pytest
from scalecard import experiments
from scalecard.report import sections
from scalecard.report.section import method
from support.blocks import CONFIG, SMOKE, block


def test_one_name_everywhere() -> None:
    assert sorted(CONFIG["experiments"]) == experiments.names()
    assert sorted(SMOKE["experiments"]) == experiments.names()
    assert sections.names() == experiments.names()


@pytest.mark.parametrize("name", experiments.names())
@pytest.mark.parametrize("scale", ["full", "quick"])
def test_every_block_makes_a_spec(name: str, scale: str) -> None:
    spec = experiments.build(name, block(name, scale))
    assert isinstance(spec, experiments.load(name).Spec)


@pytest.mark.parametrize("name", experiments.names())
def test_values_are_in_the_configuration_alone(name: str) -> None:
    fields = dataclasses.fields(experiments.load(name).Spec)
    assert [field.name for field in fields if field.default is not dataclasses.MISSING] == []


@pytest.mark.parametrize("name", experiments.names())
def test_every_module_asks_a_question_and_says_how_it_is_answered(name: str) -> None:
    for module in (experiments.load(name), sections.load(name)):
        assert module.__doc__
        assert module.__doc__.splitlines()[0].endswith("?")
    assert len(method(name)) >= 2, "what is measured, and what would make the answer wrong"


@pytest.mark.parametrize("name", experiments.names())
def test_every_section_draws_and_finds(name: str) -> None:
    section = sections.load(name)
    assert callable(section.plot)
    assert callable(section.findings)
