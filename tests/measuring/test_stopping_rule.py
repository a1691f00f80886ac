"""The `measure` block: when a measurement stops."""

from dataclasses import asdict, replace

import pytest
from pydantic import TypeAdapter, ValidationError
from scalecard.measuring.stopping_rule import Rule


def test_at_least_as_many_rounds_are_allowed_as_are_needed(rule: Rule) -> None:
    assert replace(rule, max_rounds=rule.min_rounds).max_rounds == rule.min_rounds
    with pytest.raises(ValueError, match=r"measure\.max_rounds = 5: .*min_rounds = 6"):
        replace(rule, max_rounds=5)


@pytest.mark.parametrize(
    ("key", "least", "too_small"), [("processes", 1, 0), ("min_rounds", 2, 1), ("max_rounds", 6, 1)]
)
def test_the_least_of_each_number_is_accepted_and_less_is_not(rule: Rule, key: str, least: int, too_small: int) -> None:
    accepts = TypeAdapter(Rule).validate_python
    assert getattr(accepts({**asdict(rule), key: least}), key) == least
    with pytest.raises(ValidationError, match=key):
        accepts({**asdict(rule), key: too_small})
