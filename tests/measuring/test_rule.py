"""The `measure` block: when a measurement stops."""

from dataclasses import replace

import pytest
from scalecard.measuring.rule import Rule


def test_at_least_as_many_rounds_are_allowed_as_are_needed(rule: Rule) -> None:
    assert replace(rule, max_rounds=rule.min_rounds).max_rounds == rule.min_rounds
    with pytest.raises(ValueError, match=r"measure\.max_rounds = 5: .*min_rounds = 6"):
        replace(rule, max_rounds=5)
