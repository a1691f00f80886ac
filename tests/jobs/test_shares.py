"""A budget of minutes is shared among the experiments in proportion to what each may take."""

import pytest
from scalecard.jobs.shares import SLACK, job_minutes, shares

MINUTES = {"ddp": 120, "pipeline": 60, "hybrid": 20}


def test_a_share_is_in_proportion() -> None:
    assert shares(50, MINUTES) == {"ddp": 1800, "pipeline": 900, "hybrid": 300}
    assert sum(shares(7, MINUTES).values()) == 7 * 60


@pytest.mark.parametrize("budget", [None, 200, 1000])
def test_a_budget_that_is_enough_limits_nothing(budget: float | None) -> None:
    assert shares(budget, MINUTES) == {}


def test_a_clusters_jobs_get_the_share_and_some_minutes_to_start_and_end() -> None:
    assert job_minutes(MINUTES, {}) == {"ddp": 120 + SLACK, "pipeline": 60 + SLACK, "hybrid": 20 + SLACK}
    assert job_minutes(MINUTES, shares(50, MINUTES)) == {"ddp": 30 + SLACK, "pipeline": 15 + SLACK, "hybrid": 5 + SLACK}


def test_nobody_gets_nothing() -> None:
    assert min(shares(0.001, MINUTES).values()) == 1
