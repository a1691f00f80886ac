"""What does nn.DataParallel bring, and is it the devices that cost the textbook's pair its accuracy?

The ResNet-18 variant over the whole grid of batch size, learning rate and number of devices. The textbook compares
one device at batch 256, lr 0.1 with two at batch 512, lr 0.2 (weak scaling); the grid also has one device at 512 and
0.2, to separate the effect of the devices from that of batch size and learning rate. On more devices both grow with
their number.

Epochs with the textbook's loader, as it prints them, take turns with ours, whose images are resident: what of its time
is loading? Then the textbook's two runs, both on one device: its own residual blocks, of which the first run leaves
lazy layers with PyTorch's initialisation, and the second run goes on with the first one's net, whose weights it draws
anew. From one to the other one thing changes at a time; torchvision's blocks train beside them.

The answer would be wrong if DataParallel computed something else (an epoch is compared with a plain loop's, in float64
with batch normalisation in eval mode because per-device statistics are a different function, and as timed), if an epoch
left out images (they are counted, also as they are loaded), or if it were a silent no-op, as it is on a CPU, where it
is skipped.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from torch import Tensor

from scalecard import progress
from scalecard.benchmarks.training.epochs import Epoch, OfImages, concise_epoch
from scalecard.benchmarks.training.one_process import ON_CPU
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import Machine, device_counts
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.interleaved_timing import epoch_records, time_epochs
from scalecard.measuring.prepare import guarded
from scalecard.measuring.spec import Distinct, Positive, Rate, Several, Sweep
from scalecard.measuring.stopping_rule import in_equal_parts
from scalecard.records.axes import PRINTED, Case, Start, Way, rate_for
from scalecard.records.record import Record, Unit
from scalecard.records.statistics import FEWEST
from scalecard.workloads import datasets
from scalecard.workloads.workload import built_in


@dataclass(frozen=True, kw_only=True)
class Spec(OfImages):
    model: Literal["resnet18", "resnet18_quarter", "resnet18_eighth"]
    batch_sizes: Sweep
    lrs: Several[Rate]
    as_printed: Distinct[Positive]
    run_epochs: Positive | None
    run_images: Positive | None


@dataclass(frozen=True)
class Turn:
    """What is timed in the same rounds, or one after the other; `case` is of the record that says why there is none."""

    label: str
    records: Iterator[Record]
    case: Case
    metric: str = "epoch_time"
    unit: Unit = "s"


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Seconds of every epoch, and accuracy after it, over the grid; then as printed, and the textbook's two runs."""
    dataset = spec.images()
    with open_devices(machine) as devices:
        counts = device_counts(len(devices))
        usable = [1] if machine.emulated else counts
        turns = [*_grid(spec, devices, dataset, usable), *_as_printed(spec, devices, dataset, usable)]
        if spec.run_epochs:
            label, case = "the textbook's two runs, one change at a time", Case(workload=PRINTED, devices=1)
            turns.append(Turn(label, _textbook_runs(spec, devices, dataset), case, "accuracy", "fraction"))
        pairs = min(len(spec.batch_sizes), len(spec.lrs))
        for turn in in_equal_parts(turns, label=lambda turn: turn.label, headline=pairs):
            yield from guarded(turn.records, turn.case, metric=turn.metric, unit=turn.unit)
    for count in {*counts, 2, *spec.as_printed} - {*usable}:
        note = ON_CPU if machine.emulated else f"needs {count} devices, this machine has {machine.num_devices}"
        yield Record.skipped({"workload": spec.model, "devices": count}, note, metric="epoch_time")


def _grid(spec: Spec, devices: Sequence[Device], dataset: datasets.Dataset, usable: Sequence[int]) -> Iterator[Turn]:
    build = partial(concise_epoch, devices[0], dataset, True)
    for (batch_size, lr), counts in _settings(spec, usable).items():
        workload = built_in(spec.model, seed=spec.seed, lr=lr, batch_size=batch_size)
        variants = [_variant(spec, build, Epoch(workload, count), dataset.name) for count in counts]
        epochs = epoch_records(variants, num_epochs=spec.epochs, devices=devices)
        case: Case = {"workload": spec.model, "batch_size": batch_size, "lr": lr}
        yield Turn(f"batch {batch_size}, lr {lr}", epochs, case)


def _as_printed(
    spec: Spec, devices: Sequence[Device], dataset: datasets.Dataset, usable: Sequence[int]
) -> Iterator[Turn]:
    """With the textbook's loader and with resident images, each device with the first batch size."""
    build = partial(concise_epoch, devices[0], dataset, False)
    for count in (count for count in spec.as_printed if count in usable):
        batch_size, lr = spec.batch_sizes[0] * count, rate_for(spec.lrs[0], count)
        workload = built_in(spec.model, seed=spec.seed, lr=lr, batch_size=batch_size)
        ways: tuple[Way, ...] = ("loaded", "resident")
        variants = [_variant(spec, build, Epoch(workload, count, way=way), dataset.name) for way in ways]
        epochs = epoch_records(variants, scored=False, num_epochs=FEWEST, devices=devices)
        case: Case = {"workload": spec.model, "devices": count, "batch_size": batch_size, "lr": lr}
        yield Turn(f"epochs as printed on {progress.counted(count, 'device')}", epochs, case)


def _settings(spec: Spec, counts: Sequence[int]) -> dict[tuple[int, float], Sequence[int]]:
    """Numbers of devices by batch size and learning rate: all for the grid, whose textbook's pairs come first.

    After these, where both are as many times the first as there are devices.
    """
    numbered = itertools.product(enumerate(spec.batch_sizes), enumerate(spec.lrs))
    grid = sorted(((i != j, (size, lr)) for (i, size), (j, lr) in numbered), key=lambda at: at[0])
    pairs, others = ([at for apart, at in grid if apart == wanted] for wanted in (False, True))
    grown = {(spec.batch_sizes[0] * count, rate_for(spec.lrs[0], count)): [count] for count in counts}
    whole = dict.fromkeys([*pairs, *others], counts)
    return {at: whole.get(at) or grown[at] for at in dict.fromkeys([*pairs, *grown, *others])}


def _textbook_runs(spec: Spec, devices: Sequence[Device], dataset: datasets.Dataset) -> Iterator[Record]:
    """Accuracies after each epoch: of the first run and what it may differ from, then of the second one's net."""
    assert spec.run_epochs, "they are asked for"
    images = dataset.limited(spec.run_images, None)
    share = {"resnet18_quarter": 4, "resnet18_eighth": 8}.get(spec.model, 1)  # of the width
    small, large = ((spec.batch_sizes[place], spec.lrs[place]) for place in (0, -1))

    def variant(name: str, start: Start, at: tuple[int, float], begun: Sequence[Tensor] = (), **values: Any) -> Variant:
        workload = built_in(name, seed=spec.seed, lr=at[1], batch_size=at[0], **values)
        build = partial(concise_epoch, devices[0], images, True, begun=begun)
        made = _variant(spec, build, Epoch(workload, 1), dataset.name)
        return replace(made, name=f"{name}, {start}, batch {at[0]}", case={**made.case, "start": start})

    printed = partial(variant, PRINTED, share=share)
    firsts = [
        printed("not lazy", small, initialised="not lazy"),
        printed("all", small),
        variant(spec.model, "all", small),
    ]
    timings = time_epochs(firsts, num_epochs=spec.run_epochs, devices=devices)
    if first := timings[0].able:
        begun = [tensor.detach().clone() for tensor in first.subject.state()]
        seconds = [printed("second run", at, begun) for at in dict.fromkeys((small, large))]
        timings += time_epochs(seconds, num_epochs=spec.run_epochs, devices=devices)
    for timing in timings:
        record, made = timing.accuracy_record(), timing.able
        yield replace(record, checks=made.checks, work=made.work) if made else record


def _variant(spec: Spec, build: Callable[[Epoch], Subject], at: Epoch, data: str) -> Variant:
    own = at.workload
    case: Case = {"workload": own.name, "devices": at.devices, "batch_size": own.batch_size, "lr": own.lr, "data": data}
    case |= {"way": at.way} if at.way else {}
    proven = replace(at, workload=replace(own, lr=spec.lrs[0]))
    return Variant(
        name=", ".join(filter(None, [progress.counted(at.devices, "device"), at.way])),
        case=case,
        build=build,
        proven_at=proven.proven_at(each=2, check_steps=spec.check_steps),
        timed_at=at,
    )
