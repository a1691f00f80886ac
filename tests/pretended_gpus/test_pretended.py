"""The code for GPUs runs to its end, without a failed case or a race, on boxes that libraries below PyTorch pretend."""

import os
import subprocess
import sys
from pathlib import Path

import boxes
import pytest
from scalecard.analysis.health import judge_state
from scalecard.analysis.health.alerts import alerts
from scalecard.records.record import Reason, Result
from support.namespaces import NEEDS, can_make_namespaces
from support.projects import HUNG, ROOT, results_of

HERE = Path(__file__).parent
ON_RANKS = ("allreduce", "ddp", "hybrid", "tensor_parallel", "pipeline", "health")
UNSEEN = pytest.mark.skipif(not boxes.with_devices(), reason="needs root to show device files")
REFUSED = ("mig", pytest.param("lost", marks=UNSEEN), "driver-570", "driver-535")

pytestmark = [
    pytest.mark.pretended,
    pytest.mark.skipif(bool(boxes.why_not()), reason=boxes.why_not()),
]


def run(*arguments: object, keep: Path | None = None, timeout: float = HUNG) -> str:
    """What `make pretended ARGS=...` prints, where it must succeed."""
    kept = ["--keep", str(keep)] if keep else []
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), *map(str, arguments), *kept],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'workflow' / 'src'}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("fault", ["wait", "reuse", "device"])
def test_a_race_is_reported_and_what_prevents_it_is_seen(fault: str) -> None:
    box = boxes.box(None, races=True)
    command = [sys.executable, str(HERE / "planted_race.py"), fault]
    raced, prevented = (boxes.run(box, [*command, *more], timeout=120) for more in ([], ["--prevented"]))
    assert raced.returncode == prevented.returncode == 0, raced.stdout + prevented.stdout
    assert raced.stdout.count("RACE on device 0: ") == 1
    assert "planted_race.py" in raced.stdout, "the place in the code"
    assert "RACE" not in prevented.stdout


@pytest.mark.parametrize("card", REFUSED)
def test_a_box_that_cannot_be_measured_is_refused_by_one_error(card: str) -> None:
    assert run("--card", card).startswith("refused, as it must be: ")


def test_the_whole_card_on_two_gpus_ends_in_a_report_without_false_alarms(tmp_path: Path) -> None:
    run("--short", keep=tmp_path)
    assert (tmp_path / "results" / "report.html").exists()
    health = results_of(tmp_path, "pretended")["health"]
    said = [*judge_state.state(health), *judge_state.counters(health)]
    assert {verdict.what for verdict in said} >= {"GPU 0, NVLinks", "GPU 1, slot width"}
    assert [v for v in said if v.verdict not in ("normal", "not judged") and v.kind != "slowed down"] == []


def test_experiments_on_four_ranks_pass_and_nothing_races() -> None:
    printed = run("--devices", 4, "--races", "--short", "--only", *ON_RANKS)
    assert "faults reported: none" in printed


def test_too_little_memory_costs_the_cases_that_need_more(tmp_path: Path) -> None:
    run("--memory", 2**25, "--short", "--only", "strategies", "model_parallel", keep=tmp_path)
    measured = results_of(tmp_path, "pretended")
    assert measured["strategies"].count("failed") == 0, "they fit"
    by_kind = [
        r for kind in ("parameters", "gradients") for r in measured["strategies"].select("memory_by_kind", kind=kind)
    ]
    assert len(by_kind) > 20
    for record in by_kind:
        predicted = measured["strategies"].find("predicted_memory", **record.case)
        assert predicted, record.case
        assert predicted.median == record.median, "closed forms are exact"
    failed = [record for record in measured["model_parallel"].records if record.status == "failed"]
    assert failed
    assert all(record.reason is Reason.OUT_OF_MEMORY for record in failed)


@pytest.mark.skipif(not can_make_namespaces(), reason=NEEDS)
def test_two_nodes_measure_together(tmp_path: Path) -> None:
    run("--nodes", 2, "--devices", 1, "--only", "allreduce", "ddp", keep=tmp_path)
    measured = results_of(tmp_path, "pretended")
    for result in measured.values():
        assert any(record.status == "ok" and record.case.get("nodes") == 2 for record in result.records)
        assert len(result.environment["nodes"]) == 2
        assert set(result.environment["nccl_paths"]) == {"NET/Socket"}


def health_of(card: str, folder: Path) -> Result:
    """What `health` leaves of a box with this kind of card, whose run must end with status 1 and a result."""
    run("--card", card, "--short", "--only", "health", keep=folder)
    return results_of(folder, "pretended")["health"]


def test_a_card_that_fails_in_the_middle_is_named_and_the_other_is_measured(tmp_path: Path) -> None:
    health = health_of("faulty", tmp_path)
    faults = [record for record in health.records if record.reason is Reason.DEVICE_FAULT]
    assert faults
    assert all("uncorrectable ECC error" in record.note for record in faults)
    for part in ("compute", "memory", "host link", "load", "host memory"):
        assert any(r.case["part"] == part and r.case.get("device", 0) == 0 and r.samples for r in health.records), part
    assert any(alert.what == "GPU 1: the driver reported an error" for alert in alerts(health))


def test_a_card_that_computes_wrongly_is_named_and_the_other_is_measured(tmp_path: Path) -> None:
    health = health_of("wrong", tmp_path)
    wrong = [record for record in health.records if record.reason is Reason.NOT_PROVEN]
    assert {(record.case["part"], record.case["device"]) for record in wrong} == {("compute", 1), ("load", 1)}
    assert any(r.matches(part="compute", device=0) and r.samples for r in health.records)
    assert [alert.what for alert in alerts(health) if alert.verdict == "errors"] == ["GPU 1: wrong values"]
