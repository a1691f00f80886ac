"""Epochs as the textbooks print them train as ours do, read every image, and wait after every batch where they do."""

from collections.abc import Iterator

import pytest
from scalecard import experiments
from scalecard.benchmarks.training.one_process import ON_CPU
from scalecard.experiments import dp_concise, dp_scratch
from scalecard.hardware.machine import Machine
from scalecard.records.record import Record
from scalecard.workloads.loading import Shuffled
from support.blocks import smoke_block

IMAGES, BATCH, STEPS = 40, 16, 3


def measured(machine: Machine, **changes: object) -> dict[tuple[str, int, object], Record]:
    """By metric, devices and way."""
    values = {"train_images": IMAGES, "test_images": 16, "batch_size": BATCH, "epochs": 2, **changes}
    spec = experiments.build("dp_scratch", smoke_block("dp_scratch", **values))
    records = dp_scratch.run(spec, machine)  # type: ignore[arg-type]
    return {(record.metric, record.integer("devices"), record.case.get("way")): record for record in records}


def test_every_way_is_proven_and_counted_and_they_take_turns(machine: Machine, few_images: None) -> None:
    found = measured(machine, as_printed=[1, 2])
    for devices in (1, 2):
        plain = found["epoch_time", devices, "resident"]
        for way, loaded, waits in (("resident", 0, 0), ("synchronised", 0, STEPS), ("as printed", IMAGES, STEPS)):
            epochs = found["epoch_time", devices, way]
            counted = {count.name: count.counted for count in epochs.work}
            assert (counted["loaded samples"], counted["synchronisations"]) == (loaded, waits)
            assert counted["updates"] == STEPS
            assert {check.dtype for check in epochs.checks} == {"float64", "float32"}
            assert epochs.telemetry[0].rounds_id == plain.telemetry[0].rounds_id
            assert len(epochs.samples[0]) == 6


def concise(machine: Machine, **changes: object) -> dict[object, Record]:
    """By way."""
    values = {"train_images": IMAGES, "batch_sizes": [BATCH], "epochs": 1, "run_epochs": None, **changes}
    spec = experiments.build("dp_concise", smoke_block("dp_concise", **values))
    records = dp_concise.run(spec, machine)  # type: ignore[arg-type]
    return {record.case.get("way"): record for record in records if record.metric == "epoch_time"}


def test_of_the_concise_way_loading_alone_is_added(machine: Machine, few_images: None) -> None:
    found = concise(machine, as_printed=[1])
    for way, loaded in (("loaded", IMAGES), ("resident", 0)):
        counted = {count.name: count.counted for count in found[way].work}
        assert (counted["loaded samples"], counted["samples"], counted["updates"]) == (loaded, IMAGES, STEPS)
        assert {check.dtype for check in found[way].checks} == {"float64", "float32"}
        assert len(found[way].samples[0]) == 6
    assert found["loaded"].telemetry[0].rounds_id == found["resident"].telemetry[0].rounds_id
    assert set(concise(machine, as_printed=[])) == {None}


def test_a_loader_that_leaves_out_the_last_batch_is_not_timed(
    machine: Machine, few_images: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = Shuffled.__iter__

    def whole_batches_only(self: Shuffled) -> Iterator[list[int]]:
        return (batch for batch in every(self) if len(batch) == self.batch_size)

    monkeypatch.setattr(Shuffled, "__iter__", whole_batches_only)
    found = measured(machine, as_printed=[1])
    assert found["epoch_time", 1, "as printed"].status == "failed"
    assert found["epoch_time", 1, "synchronised"].status == "ok"
    assert [concise(machine, as_printed=[1])[way].status for way in ("loaded", "resident")] == ["failed", "ok"]


def test_devices_that_are_not_there_are_skipped_with_the_reason(machine: Machine, few_images: None) -> None:
    found = measured(machine, as_printed=[300])
    assert found["epoch_time", 300, None].note == f"needs 300 devices, this machine has {machine.num_devices}"
    assert not [way for _, _, way in found if way]


def test_the_framework_takes_its_turn_and_is_skipped_where_it_would_do_nothing(
    machine: Machine, few_images: None
) -> None:
    found = measured(machine, as_printed=[1, 2])
    one, several = (found["epoch_time", devices, "concise"] for devices in (1, 2))
    assert one.telemetry[0].rounds_id == found["epoch_time", 1, "resident"].telemetry[0].rounds_id
    counted = {count.name: count.counted for count in one.work}
    assert (counted["samples"], counted["updates"]) == (IMAGES, STEPS)
    assert counted["FLOPs"] == next(
        count.counted for count in found["epoch_time", 1, None].work if count.name == "FLOPs"
    )
    assert (several.status, several.note) == ("skipped", ON_CPU)
