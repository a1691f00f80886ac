"""What failed is one alert that names the device, and fails the gate at every level."""

from dataclasses import replace

import pytest
from scalecard.analysis.health.alerts import alerts
from scalecard.cli import health_gate
from scalecard.records.record import Reason, Record, Result
from scalecard.report.first_screen import faults_of
from scalecard.report.sections import health
from support.builders import out_of_memory
from support.health_boxes import Box

HEALTHY = Box(switched=18)
ECC = "device 3: CUDA error: uncorrectable ECC error encountered"
WRONG = "10 products against float64, relative norm (float32): differs by 0.5, at most 1e-05 is allowed"


def touching(record: Record, index: int) -> bool:
    return any(record.case.get(axis) == index for axis in ("device", "source", "target")) and record.metric == "time"


def failing(result: Result, note: str, reason: Reason, *parts: str, index: int = 3) -> Result:
    """The same box, with what was measured of one device in these parts lost."""
    records = [
        Record.failed(record.case, note, reason=reason)
        if touching(record, index) and record.case["part"] in parts
        else record
        for record in result.records
    ]
    return replace(result, records=records)


@pytest.mark.parametrize("level", ["errors", "low", "odd"])
def test_a_gpu_whose_driver_reports_an_error_is_one_alert(level: str) -> None:
    box = failing(HEALTHY.result(), ECC, Reason.DEVICE_FAULT, "compute", "memory", "host link", "device link", "load")
    (alert,) = alerts(box)
    assert (alert.what, alert.verdict) == ("GPU 3: the driver reported an error", "errors")
    assert "uncorrectable ECC" in alert.value
    assert "dmesg" in alert.advice
    assert health_gate.check([box], "box", fail_on=level).failing == [alert]
    words = {tile.part: tile.verdict for tile in health.tiles(box)}
    assert (words["compute"], words["memory"], words["host"]) == ("errors", "errors", "normal")


def test_a_gpu_that_computes_wrongly_is_one_alert() -> None:
    (alert,) = alerts(failing(HEALTHY.result(), WRONG, Reason.NOT_PROVEN, "compute", "load"))
    assert (alert.what, alert.verdict) == ("GPU 3: wrong values", "errors")
    assert "differs by 0.5" in alert.value
    assert alert.text.endswith(". It also shows in compute; load")
    assert "do not train on it" in alert.advice


def test_a_pair_that_copies_wrongly_is_named() -> None:
    box = HEALTHY.result()
    records = [
        Record.failed(r.case, "contents", reason=Reason.NOT_PROVEN)
        if r.matches(part="device link", source=2, target=5)
        else r
        for r in box.records
    ]
    (alert,) = alerts(replace(box, records=records))
    assert alert.what == "GPU 2 and GPU 5: wrong values"


@pytest.mark.parametrize(("reason", "said"), [(Reason.NOT_PROVEN, WRONG), (Reason.DEVICE_FAULT, ECC)])
def test_what_no_device_is_blamed_for_is_an_alert_of_its_part(reason: Reason, said: str) -> None:
    box = HEALTHY.result()
    for part, name in (("collective", "collectives"), ("storage", "host"), ("host memory", "host")):
        records = [
            Record.failed(r.case, said, reason=reason) if r.case["part"] == part and r.metric == "time" else r
            for r in box.records
        ]
        (alert,) = alerts(replace(box, records=records))
        assert (alert.part, alert.verdict) == (name, "errors")
        assert alert.what.startswith(f"{name}: ")
    ended = Record.failed({}, said, reason=reason)
    assert [alert.part for alert in alerts(replace(box, records=[*box.records, ended]))] == ["host"]


def test_a_gpu_that_fails_in_collectives_too_is_blamed_first() -> None:
    box = failing(HEALTHY.result(), WRONG, Reason.NOT_PROVEN, "compute", "load")
    records = [
        Record.failed(r.case, "a sum", reason=Reason.NOT_PROVEN) if r.case["part"] == "collective" else r
        for r in box.records
    ]
    (alert,) = alerts(replace(box, records=records))
    assert alert.what == "GPU 3: wrong values"


def test_lost_ranks_and_an_early_end_are_alerts_and_too_little_memory_is_none() -> None:
    box = HEALTHY.result()
    collective = next(record for record in box.records if record.case["part"] == "collective")
    lost = Record.failed({**collective.case, "bytes": 8}, "of 8 ranks, rank 1 was killed", reason=Reason.LOST)
    ended = Record.failed({}, "the experiment ended early: TypeError: no", reason=Reason.ERROR)
    found = alerts(replace(box, records=[*box.records, lost, ended]))
    assert {(alert.part, alert.verdict) for alert in found} == {("collectives", "errors"), ("host", "errors")}
    small = out_of_memory({"part": "memory", "device": 1, "access": "copy", "bytes": 2**40, "at_once": False})
    assert alerts(replace(box, records=[*box.records, small])) == []


def test_the_first_screen_names_a_fault_of_health_by_its_alert_alone() -> None:
    box = failing(HEALTHY.result(), ECC, Reason.DEVICE_FAULT, "compute", "memory", "host link", "device link", "load")
    assert faults_of(box) == []
    other = replace(box, experiment="ddp", records=[Record.failed({"devices": 2}, WRONG, reason=Reason.NOT_PROVEN)])
    (said,) = faults_of(other)
    assert said.startswith("Not proven: devices 2: 10 products")


@pytest.mark.parametrize("level", ["errors", "low", "odd"])
def test_a_part_without_time_is_one_alert_and_fails_every_level(level: str) -> None:
    box = HEALTHY.result()
    late = [
        Record.skipped(record.case, "left out", reason=Reason.NO_TIME) if record.case.get("part") == "load" else record
        for record in box.records
    ]
    (alert,) = alerts(replace(box, records=late))
    assert alert.verdict == "not measured"
    assert "`minutes` of health" in alert.advice
    assert health_gate.check([replace(box, records=late)], "box", fail_on=level).failing == [alert]
    assert "Healthy: " not in " ".join(each.text for each in health.findings(replace(box, records=late)))
