"""A budget of minutes is shared among the experiments in proportion to what each is estimated to need."""

import json

import pytest
from scalecard.jobs import needs
from scalecard.jobs.plan import SLACK, job_minutes, shares
from scalecard.jobs.source_code import experiment_names
from scalecard.records.files import load
from support.blocks import CONFIG, block
from support.projects import ROOT

NEEDS = {"ddp": 7200.0, "pipeline": 3600.0, "hybrid": 1200.0}
NAMES = list(CONFIG["experiments"])


def seconds(name: str, scale: str = "full", *, devices: int | None = 8, nodes: int = 1, **changes: object) -> float:
    return needs.seconds(name, json.loads(block(name, scale, **changes)), scale, devices=devices, nodes=nodes)


def test_a_share_is_in_proportion() -> None:
    assert shares(50, NEEDS, limited=False) == {"ddp": 1800, "pipeline": 900, "hybrid": 300}
    assert sum(shares(7, NEEDS, limited=True).values()) == 7 * 60
    assert shares(400, NEEDS, limited=False) == {"ddp": 14400, "pipeline": 7200, "hybrid": 2400}, "it is an estimate"


def test_without_a_budget_nothing_is_limited_on_a_machine_of_ones_own() -> None:
    assert shares(None, NEEDS, limited=False) == {}
    assert shares(None, NEEDS, limited=True) == {"ddp": 14400, "pipeline": 7200, "hybrid": 2400}


def test_a_clusters_jobs_get_the_share_and_some_minutes_to_start_and_end() -> None:
    assert job_minutes(NEEDS, {}) == {"ddp": 120 + SLACK, "pipeline": 60 + SLACK, "hybrid": 20 + SLACK}
    assert job_minutes(NEEDS, shares(50, NEEDS, limited=True)) == {
        "ddp": 30 + SLACK,
        "pipeline": 15 + SLACK,
        "hybrid": 5 + SLACK,
    }


def test_nobody_gets_nothing() -> None:
    assert min(shares(0.001, NEEDS, limited=False).values()) == 1
    assert shares(10, {"pipeline": 0.0}, limited=False) == {"pipeline": 1}


def test_health_gives_up_no_time_and_the_others_share_what_is_left() -> None:
    found = {"health": 600.0, "ddp": 7200.0, "pipeline": 3600.0}
    assert shares(40, found, limited=False) == {"health": 600, "ddp": 1200, "pipeline": 600}
    assert shares(5, found, limited=False) == {"health": 600, "ddp": 1, "pipeline": 1}
    assert shares(40, {"health": 600.0}, limited=False) == {"health": 600}


@pytest.mark.parametrize("name", ["allreduce", "pipeline", "hybrid"])
def test_what_measures_nothing_on_one_device_takes_no_time_from_others(name: str) -> None:
    for scale in ("full", "quick"):
        assert seconds(name, scale, devices=1) == 0
        assert seconds(name, scale, devices=2) > 0
    assert seconds(name, devices=1, nodes=2) > 0


def test_every_experiment_is_estimated_and_more_devices_nodes_and_processes_never_need_less() -> None:
    for name in experiment_names():
        one, two, eight = (seconds(name, devices=count) for count in (1, 2, 8))
        assert one <= two <= eight == seconds(name, devices=None), f"{name}: a cluster's node is not known yet"
        assert eight <= seconds(name, nodes=4)
        assert eight <= seconds(name, measure={**CONFIG["measure"], "processes": 9})


def test_what_is_left_out_needs_no_time() -> None:
    rungs = ["tf32", "bf16"]
    assert seconds("tuning", rungs=rungs) < seconds("tuning", rungs=[*rungs, "compile"]) - 2 * 45
    assert seconds("ddp", accuracy_models=[]) < seconds("ddp")
    assert seconds("strategies", workloads={"gpt": {"batch_size": 8}}) < 0.6 * seconds("strategies")
    assert seconds("copy_cost", bytes=[4096]) < 0.4 * seconds("copy_cost")


@pytest.mark.skipif(not (ROOT / "results").exists(), reason="no results of an H200 here")
@pytest.mark.parametrize(
    ("folder", "name"), [("", "health"), ("", "ddp"), ("", "dp_scratch"), ("-second", "strategies")]
)
def test_the_estimate_is_near_what_an_h200_took(folder: str, name: str) -> None:
    """Those that left out little: at least half of the estimate and at most twice as long."""
    result = load(ROOT / "results" / f"h200x1-torch211{folder}" / f"{name}.json")
    assert result.spec["measure"]["processes"] == 1
    estimate = needs.need(name, result.spec, "full", devices=1, nodes=1).total()
    assert 0.5 < result.seconds / estimate < 2


@pytest.mark.parametrize("devices", [8, 2, 1])
def test_the_documentation_has_the_table_that_the_command_prints(devices: int) -> None:
    blocks = {name: json.loads(block(name)) for name in NAMES}
    assert needs.table(blocks, devices) in (ROOT / "docs" / "method.md").read_text()
