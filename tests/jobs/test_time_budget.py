"""A budget of minutes is shared among the experiments: first what their headlines need, then in proportion."""

import json

import pytest
from scalecard.jobs import needs
from scalecard.jobs.inputs import experiment_names
from scalecard.jobs.needs import UNITS
from scalecard.jobs.plan import SLACK, job_minutes, shares
from scalecard.records.files import load
from support.blocks import CONFIG, block
from support.projects import MEASURED, ROOT

NEEDS = {"ddp": 7200.0, "pipeline": 3600.0, "hybrid": 1200.0}
HEADLINES = {"ddp": 600.0, "pipeline": 600.0, "hybrid": 0.0}
NAMES = list(CONFIG["experiments"])


def seconds(name: str, scale: str = "full", *, devices: int | None = 8, nodes: int = 1, **changes: object) -> float:
    return needs.seconds(name, json.loads(block(name, scale, **changes)), scale, devices=devices, nodes=nodes)


def test_a_headline_comes_first_and_the_rest_is_in_proportion_to_what_else_there_is() -> None:
    assert shares(10, NEEDS, HEADLINES, limited=False) == {"ddp": 300, "pipeline": 300, "hybrid": 1}
    assert shares(20, NEEDS, HEADLINES, limited=False) == {"ddp": 600, "pipeline": 600, "hybrid": 1}
    assert shares(110, NEEDS, HEADLINES, limited=False) == {"ddp": 3900, "pipeline": 2100, "hybrid": 600}
    assert shares(200, NEEDS, HEADLINES, limited=False) == NEEDS
    assert shares(400, NEEDS, HEADLINES, limited=False) == {"ddp": 14400, "pipeline": 7200, "hybrid": 2400}


def test_a_share_is_in_proportion() -> None:
    assert shares(50, NEEDS, NEEDS, limited=False) == {"ddp": 1800, "pipeline": 900, "hybrid": 300}
    assert sum(shares(7, NEEDS, NEEDS, limited=True).values()) == 7 * 60
    assert shares(400, NEEDS, NEEDS, limited=False) == {"ddp": 14400, "pipeline": 7200, "hybrid": 2400}


def test_without_a_budget_nothing_is_limited_on_a_machine_of_ones_own() -> None:
    assert shares(None, NEEDS, NEEDS, limited=False) == {}
    assert shares(None, NEEDS, NEEDS, limited=True) == {"ddp": 14400, "pipeline": 7200, "hybrid": 2400}


def test_a_clusters_jobs_get_the_share_and_some_minutes_to_start_and_end() -> None:
    assert job_minutes(NEEDS, {}) == {"ddp": 120 + SLACK, "pipeline": 60 + SLACK, "hybrid": 20 + SLACK}
    assert job_minutes(NEEDS, shares(50, NEEDS, NEEDS, limited=True)) == {
        "ddp": 30 + SLACK,
        "pipeline": 15 + SLACK,
        "hybrid": 5 + SLACK,
    }


def test_nobody_gets_nothing() -> None:
    assert min(shares(0.001, NEEDS, NEEDS, limited=False).values()) == 1
    assert shares(10, {"pipeline": 0.0}, {"pipeline": 0.0}, limited=False) == {"pipeline": 1}


def test_health_gives_up_no_time_and_the_others_share_what_is_left() -> None:
    found = {"health": 600.0, "ddp": 7200.0, "pipeline": 3600.0}
    assert shares(40, found, found, limited=False) == {"health": 600, "ddp": 1200, "pipeline": 600}
    assert shares(5, found, found, limited=False) == {"health": 600, "ddp": 1, "pipeline": 1}
    assert shares(40, {"health": 600.0}, {"health": 600.0}, limited=False) == {"health": 600}


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


@pytest.mark.parametrize(("devices", "minutes"), [(8, 60), (2, 40), (1, 30)])
def test_the_headlines_of_the_default_configuration_fit_the_time(devices: int, minutes: int) -> None:
    """Of one H200 within half an hour, of two devices within 40 minutes, of eight within an hour; health is whole."""
    whole = {name: seconds(name, devices=devices) for name in NAMES}
    first = {
        name: needs.seconds(name, json.loads(block(name)), "full", devices=devices, nodes=1, headline=True)
        for name in NAMES
    }
    assert sum(first.values()) < 60 * minutes
    found = shares(minutes, whole, first, limited=False)
    assert all(found[name] >= first[name] - 1 for name in NAMES)
    assert all(0 < first[name] <= whole[name] or whole[name] == 0 for name in NAMES if name != "health")
    assert first["health"] == 2 * whole["health"], "with room to end"


def test_what_is_left_out_needs_no_time() -> None:
    rungs = ["tf32", "bf16"]
    assert seconds("tuning", rungs=rungs) < seconds("tuning", rungs=[*rungs, "compile"]) - 2 * UNITS["compilations"]
    assert seconds("ddp", accuracy_models=[]) < seconds("ddp")
    assert seconds("strategies", workloads={"gpt": {"batch_size": 8}}) < 0.6 * seconds("strategies")
    assert seconds("copy_cost", bytes=[4096]) < 0.6 * seconds("copy_cost")


@pytest.mark.parametrize(
    ("folder", "name"), [("-second", "strategies"), ("", "health"), ("", "ddp"), ("", "dp_scratch")]
)
def test_the_estimate_is_near_what_an_h200_took(folder: str, name: str) -> None:
    """Those that left out little: at least half of the estimate and at most twice as long."""
    result = load(MEASURED / f"h200x1-torch211{folder}" / f"{name}.json")
    assert {len(record.samples) for record in result.records if record.samples} == {1}, "one process"
    since = {"precision": ["float32"], "checkpointing": ["none"], "as_printed": []}
    spec = {**since, **result.spec}  # those of today, which did less
    estimate = needs.need(name, spec, "full", devices=1, nodes=1).total()
    assert 0.5 < result.seconds / estimate < 2


@pytest.mark.parametrize("devices", [8, 2, 1])
def test_the_documentation_has_the_table_that_the_command_prints(devices: int) -> None:
    blocks = {name: json.loads(block(name)) for name in NAMES}
    assert needs.table(blocks, devices) in (ROOT / "docs" / "method.md").read_text()
