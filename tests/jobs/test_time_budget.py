"""A budget of minutes is shared among the experiments in proportion to what each may take."""

import pytest
from scalecard.jobs.plan import SLACK, estimated, job_minutes, shares

MINUTES = {"ddp": 120, "pipeline": 60, "hybrid": 20}


def test_a_share_is_in_proportion() -> None:
    assert shares(50, MINUTES, limited=False) == {"ddp": 1800, "pipeline": 900, "hybrid": 300}
    assert sum(shares(7, MINUTES, limited=True).values()) == 7 * 60


@pytest.mark.parametrize(("budget", "limited"), [(200, False), (1000, False), (None, True)])
def test_nobody_gets_more_than_its_minutes(budget: float | None, limited: bool) -> None:
    assert shares(budget, MINUTES, limited=limited) == {"ddp": 7200, "pipeline": 3600, "hybrid": 1200}


def test_without_a_budget_nothing_is_limited_on_a_machine_of_ones_own() -> None:
    assert shares(None, MINUTES, limited=False) == {}


def test_a_clusters_jobs_get_the_share_and_some_minutes_to_start_and_end() -> None:
    assert job_minutes(MINUTES, {}) == {"ddp": 120 + SLACK, "pipeline": 60 + SLACK, "hybrid": 20 + SLACK}
    assert job_minutes(MINUTES, shares(50, MINUTES, limited=True)) == {
        "ddp": 30 + SLACK,
        "pipeline": 15 + SLACK,
        "hybrid": 5 + SLACK,
    }


@pytest.mark.parametrize(
    ("scale", "devices", "nodes", "processes", "minutes"),
    [
        ("full", 8, 1, 3, 60),  # 1, 2, 4 and 8 devices
        ("full", None, 1, 3, 60),  # a cluster's, before any node was seen
        ("full", 1, 1, 3, 15),
        ("full", 2, 1, 1, 10),
        ("full", 8, 4, 3, 120),  # besides, on 2 and on 4 nodes, with one rank and with eight on each
        ("quick", 2, 1, 1, 60),
        ("quick", 4, 1, 3, 270),
    ],
)
def test_minutes_follow_devices_nodes_and_processes(
    scale: str, devices: int | None, nodes: int, processes: int, minutes: int
) -> None:
    assert estimated("ddp", 60, scale, devices=devices, nodes=nodes, processes=processes) == minutes


def test_nobody_gets_nothing() -> None:
    assert min(shares(0.001, MINUTES, limited=False).values()) == 1


def test_health_gives_up_no_time_and_the_others_share_what_is_left() -> None:
    minutes = {"health": 10, "ddp": 120, "pipeline": 60}
    assert shares(40, minutes, limited=False) == {"health": 600, "ddp": 1200, "pipeline": 600}
    assert shares(5, minutes, limited=False) == {"health": 600, "ddp": 1, "pipeline": 1}
    assert shares(40, {"health": 10}, limited=False) == {"health": 600}


@pytest.mark.parametrize("name", ["allreduce", "pipeline", "hybrid"])
def test_what_measures_nothing_on_one_device_takes_no_time_from_others(name: str) -> None:
    assert estimated(name, 60, "full", devices=1, nodes=1, processes=3) == 0
    assert estimated(name, 60, "full", devices=1, nodes=2, processes=3) > 0
    assert estimated(name, 60, "full", devices=2, nodes=1, processes=3) == 30
