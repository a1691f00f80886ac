"""Where seconds go: each counted once, also those that ranks hand over."""

import time

import pytest
from scalecard import time_spent
from scalecard.time_spent import Kind, spent_on


def test_what_is_nested_counts_once_where_it_is_innermost() -> None:
    time_spent.take()
    began = time.monotonic()
    with spent_on(Kind.LAUNCH):
        time.sleep(0.05)
        with spent_on(Kind.PROOF):
            time.sleep(0.02)
        with spent_on(Kind.PROOF):
            time.sleep(0.02)
    whole = time.monotonic() - began
    spent = time_spent.take()
    assert list(spent) == ["proof", "launch"]
    assert spent["proof"] == pytest.approx(0.04, rel=0.5)
    assert sum(spent.values()) == pytest.approx(whole, rel=0.05)
    assert time_spent.take() == {}, "taken once"


def test_a_launch_is_what_its_ranks_leave_of_it() -> None:
    time_spent.take()
    with spent_on(Kind.LAUNCH):
        time.sleep(0.05)
        time_spent.add({"timed": 0.03, "proof": 0.01})
    spent = time_spent.take()
    assert (spent["timed"], spent["proof"]) == (0.03, 0.01)
    assert 0.01 <= spent["launch"] < 0.03


def test_an_error_counts_what_it_took() -> None:
    time_spent.take()

    @spent_on(Kind.TRIAL)
    def fail() -> None:
        time.sleep(0.01)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert time_spent.take()["trial"] >= 0.01
