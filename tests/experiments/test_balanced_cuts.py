"""Cuts over 2..N devices, with a small network instead of ResNet-50: what is measured where, and what is played."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scalecard import experiments
from scalecard.benchmarks.training import cut_model
from scalecard.experiments import pipeline
from scalecard.hardware.machine import Machine, probe
from scalecard.measuring import shared_decisions
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.records.record import Record
from scalecard.records.schedules import SCHEDULES, played
from support.blocks import SMOKE, smoke_block
from support.small_network import replace_resnet50


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        replace_resnet50(patch.setattr)
        patch.setattr(pipeline, "launch_and_record", lambda *args, **options: [])
        yield


@pytest.fixture(scope="module")
def pipelines(small: None) -> list[Record]:
    return run("pipeline", probe(), 4)


def run(name: str, machine: Machine, num_devices: int, **changes: Any) -> list[Record]:
    """The small network moves little at ResNet-50's learning rate."""
    spec = experiments.build(name, smoke_block(name, check_steps=2, lr=0.1, **changes))
    here = replace(machine, num_devices=num_devices, cores=num_devices)
    return list(experiments.load(name).run(spec, here))


def places(records: Iterable[Record]) -> set[tuple[object, object]]:
    return {(record.case["devices"], record.case["cut"]) for record in records if "cut" in record.case}


@pytest.mark.parametrize(("num_devices", "counts"), [(3, [2, 3])])
def test_model_parallelism_is_measured_over_2_to_n_devices(
    machine: Machine, num_devices: int, counts: list[int]
) -> None:
    records = run("model_parallel", machine, num_devices)
    assert {record.status for record in records if record.metric != "peak_memory"} == {"ok"}
    assert len([record for record in records if record.metric == "block_time"]) == cut_model.num_blocks(
        "resnet26_quarter"
    )
    cut = [record for record in records if record.case.get("strategy") == "model parallel"]
    assert places(cut) == {(2, "after layer2"), *((count, "balanced") for count in counts)}
    for record in cut[1:]:  # the first is the toy
        num_blocks = cut_model.num_blocks(record.text("workload"))
        assert (len(record.blocks), sum(record.blocks)) == (record.case["devices"], num_blocks)
        assert {check.dtype for check in record.checks} == {"float64", "float32"}
    in_print = {record.text("strategy"): record for record in records if record.metric == "tutorial_time"}
    assert set(in_print) == {"single device", "model parallel"}
    for record in in_print.values():
        (ours,) = [one for one in records if one.metric == "step_time" and one.case == record.case]
        assert ours.telemetry[0].rounds_id == record.telemetry[0].rounds_id
    alone = [record for record in records if record.case.get("strategy") == "stage alone"]
    assert len(alone) == 2 + sum(counts)


def test_pipelines_are_measured_and_played_over_2_to_n_devices(pipelines: list[Record]) -> None:
    assert {record.status for record in pipelines if record.metric != "peak_memory"} == {"ok"}
    every = {(2, "after layer2"), (2, "balanced"), (4, "balanced")}
    for metric in ("step_time", "stage_time", "played_time", "played_bubble"):
        assert places(record for record in pipelines if record.metric == metric) == every, metric
    for bubble in (record for record in pipelines if record.metric == "played_bubble"):
        assert all(0 <= value < 1 for value in bubble.samples[0])
    for one in (record for record in pipelines if record.metric == "played_time"):
        (measured,) = [r for r in pipelines if r.metric == "step_time" and r.case == one.case]
        assert measured.over(one).value > 0
        assert measured.telemetry[0].rounds_id == one.telemetry[0].rounds_id, "played round by round"


def test_what_is_played_are_the_stages_own_times(pipelines: list[Record]) -> None:
    of: dict[str, Any] = {"devices": 2, "cut": "balanced"}
    count = SMOKE["experiments"]["pipeline"]["quick"]["batch_size"]  # in micro-batches of one

    def seconds(part: str, number: int) -> list[float]:
        found = [r for r in pipelines if r.metric == "stage_time" and r.matches(part=part, **of)]
        return [record.samples[0][number] for record in sorted(found, key=lambda record: str(record.case["stage"]))]

    (one,) = [r for r in pipelines if r.metric == "played_time" and r.matches(strategy="1f1b", **of)]
    for number, value in enumerate(one.samples[0]):
        forward = [total / count for total in seconds("forward", number)]
        both = [total / count for total in seconds("forward and backward", number)]
        backward = [max(0.0, b - f) for f, b in zip(forward, both, strict=True)]
        update = seconds("update", number)
        assert value == pytest.approx(played(SCHEDULES["1f1b"], forward, backward, [0.0], count, update).makespan)


def timing(block: int, *seconds: float, failure: str = "") -> Timing:
    variant = Variant(name=f"block {block}", case={"block": block}, build=lambda at: at)
    return Timing(variant=variant, completion=list(seconds), failure=failure)


def test_processes_of_one_run_cut_where_the_first_one_did(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(shared_decisions.FOLDER, "")
    first, second = ([timing(block, slow if block else 1.0) for block in range(4)] for slow in (1.0, 0.1))
    assert cut_model.chosen_cuts("resnet50", lambda: second, [2])[1] == ("balanced", (1,)), (
        "outside of a run nothing is kept"
    )
    shared_decisions.begin(tmp_path)
    textbook = ("after layer2", (8,))
    for blocks in (first, second):
        assert cut_model.chosen_cuts("resnet50", lambda found=blocks: found, [2]) == [textbook, ("balanced", (2,))]


def test_a_block_without_a_time_leaves_the_textbooks_cut_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared_decisions.FOLDER, "")
    blocks = [timing(0, 1.0), timing(1, failure="no room")]
    assert cut_model.chosen_cuts("resnet50", lambda: blocks, [2, 4]) == [("after layer2", (8,))]
    told = list(cut_model.not_cut("resnet50", blocks, [2, 4], {"strategy": "model parallel"}))
    assert [record.case["devices"] for record in told] == [2, 4]
    assert {record.status for record in told} == {"failed"}
    assert all(record.note == "a block has no time: no room" for record in told)


def test_more_devices_than_blocks_are_skipped_with_a_reason() -> None:
    (told,) = cut_model.not_cut("resnet50", [timing(0, 1.0)], [2, 32], {"strategy": "model parallel"})
    assert (told.case["devices"], told.status) == (32, "skipped")
    assert "18 blocks" in told.note
