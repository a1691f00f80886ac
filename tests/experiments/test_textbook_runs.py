"""The textbook's two runs of ResNet-18, and what lies between them: each proven, counted and scored."""

from scalecard import experiments
from scalecard.experiments import dp_concise
from scalecard.hardware.machine import Machine
from scalecard.records.axes import PRINTED
from scalecard.records.record import Record
from support.blocks import smoke_block


def measured(machine: Machine, **changes: object) -> list[Record]:
    spec = experiments.build("dp_concise", smoke_block("dp_concise", **changes))
    return [record for record in dp_concise.run(spec, machine) if "start" in record.case]  # type: ignore[arg-type]


def test_each_run_is_proven_and_has_the_accuracy_after_every_epoch(machine: Machine, few_images: None) -> None:
    found = measured(machine, batch_sizes=[4, 8], lrs=[0.1, 0.2], run_epochs=2, run_images=12)
    cases = [(r.case["workload"], r.case["start"], r.case["batch_size"], r.case["lr"]) for r in found]
    assert cases == [
        (PRINTED, "not lazy", 4, 0.1),
        (PRINTED, "all", 4, 0.1),
        ("resnet18_eighth", "all", 4, 0.1),
        (PRINTED, "second run", 4, 0.1),
        (PRINTED, "second run", 8, 0.2),
    ]
    for record in found:
        assert (record.metric, len(record.samples[0])) == ("accuracy", 2)
        assert {check.dtype for check in record.checks} == {"float64", "float32"}
        assert {count.name: count.counted for count in record.work}["samples"] == 12


def test_they_can_be_left_out(machine: Machine, few_images: None) -> None:
    assert measured(machine, run_epochs=None) == []
