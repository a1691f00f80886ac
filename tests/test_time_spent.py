"""Where seconds go: each counted once, also those that ranks hand over."""

from collections.abc import Callable

import pytest
from scalecard import time_spent
from scalecard.time_spent import Activity, spent_on


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets the clock go on; nothing has been counted yet."""
    now = [0.0]
    monkeypatch.setattr(time_spent.time, "monotonic", lambda: now[0])
    time_spent.take()
    return lambda seconds: now.append(now.pop() + seconds)


def test_what_is_nested_counts_once_where_it_is_innermost(wait: Callable[[float], None]) -> None:
    with spent_on(Activity.LAUNCH):
        wait(5)
        with spent_on(Activity.PROOF):
            wait(2)
            with spent_on(Activity.COMPILATION):
                wait(7)
        with spent_on(Activity.PROOF):
            wait(1)
    wait(100)
    assert time_spent.take() == {"proof": 3, "compilation": 7, "launch": 5}
    assert time_spent.take() == {}, "taken once"


def test_a_launch_is_what_its_ranks_leave_of_it(wait: Callable[[float], None]) -> None:
    with spent_on(Activity.LAUNCH):
        wait(5)
        time_spent.add({"timed": 3, "proof": 1})
    assert time_spent.take() == {"timed": 3, "proof": 1, "launch": 1}


def test_an_error_counts_what_it_took(wait: Callable[[float], None]) -> None:
    @spent_on(Activity.TRIAL)
    def fail() -> None:
        wait(4)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    with spent_on(Activity.WARM_UP):
        wait(1)
    assert time_spent.take() == {"warm-up": 1, "trial": 4}
