"""How small should micro-batches be, and how close does a pipeline come to the ideal?

ResNet-50 over two devices in micro-batches of every split size, by the textbook's way (one thread issues, autograd
does the backward), by our own GPipe and 1F1B schedules, and by torch.distributed.pipelining's; with the single device
and plain model parallelism measured in the same rounds.

It would be wrong if micro-batching computed something else: with batch normalisation in training mode it does, by
definition, since statistics are taken over a micro-batch. So equality is proven in float64 with it in eval mode, and
the timing is of training mode, as the textbook's is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from scalecard import measure, progress
from scalecard.devices import Device, empty_cache, open_devices
from scalecard.failures import guarded
from scalecard.machine import Machine
from scalecard.meeting import Layout
from scalecard.models import resnet50_stages
from scalecard.parallel.library_pipeline import LibraryPipeline, library_parameters
from scalecard.parallel.model import ModelParallel
from scalecard.parallel.pipeline import ScheduledPipeline, TextbookPipeline
from scalecard.parallel.schedules import SCHEDULES
from scalecard.parallel.workload import Workload, one_hot_images, peak_memory, reference, trained
from scalecard.proof import same_parameters
from scalecard.ranks import RankContext, measured
from scalecard.schema import Case, Check, Record
from scalecard.specs import Common, Positive, Rate, Sweep

Step = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Spec(Common):
    batch_size: Positive
    image_size: Positive
    num_classes: Positive
    split_sizes: Sweep
    lr: Rate
    check_batch_size: Positive
    check_image_size: Positive
    check_steps: Positive

    def __post_init__(self) -> None:
        if self.image_size < 64:
            raise ValueError(
                f"image_size = {self.image_size}: must be at least 64, or batch norm sees one value a channel"
            )
        for size in self.split_sizes:
            if size > self.batch_size:
                raise ValueError(f"split_sizes = {size}: must be at most batch_size = {self.batch_size}")


def run(spec: Spec, machine: Machine) -> Iterator[Record]:
    """Everything in one process first, then the library's schedules on two ranks."""
    if machine.num_devices < 2:
        for implementation in (*_implementations(), *(f"torch {name}" for name in SCHEDULES)):
            note = "needs 2 devices, this machine has 1"
            case: Case = {"implementation": implementation, "split_size": spec.split_sizes[0]}
            yield Record(case=case, metric="time", unit="s", status="skipped", note=note)
        return
    with open_devices(machine, 2) as devices:
        small = Workload(spec.check_batch_size, spec.check_image_size, spec.num_classes, spec.lr, spec.seed)
        progress.doing("proving equality in float64")
        expected = [p.detach().cpu() for p in reference(small, devices[0], spec.check_steps)]
        yield from guarded(_in_process(spec, devices, small, expected), {"implementation": "in one process"})
    empty_cache()
    progress.doing("torch.distributed.pipelining on two ranks")
    lost: Case = {"implementation": "torch.distributed.pipelining"}
    yield from measured(_rank, spec, small, expected, layout=Layout(2), machine=machine, case=lost, metric="time")


def _implementations() -> dict[str, tuple[type[ModelParallel], Callable[[int], Step]]]:
    """Name to the executor's class and, for a split size, its step."""
    ours = {
        name: (ScheduledPipeline, partial(_fixed, ScheduledPipeline.pipelined_step, schedule=schedule))
        for name, schedule in SCHEDULES.items()
    }
    return {"textbook": (TextbookPipeline, partial(_fixed, TextbookPipeline.pipelined_step)), **ours}


def _fixed(step: Step, split_size: int, **options: object) -> Step:
    return partial(step, split_size=split_size, **options)


def _in_process(spec: Spec, devices: list[Device], small: Workload, expected: list[Tensor]) -> Iterator[Record]:
    load = Workload(spec.batch_size, spec.image_size, spec.num_classes, spec.lr, spec.seed)
    works: dict[str, measure.Work] = {}
    cases: dict[str, Case] = {}
    checks: dict[str, list[Check]] = {}
    models: dict[str, ModelParallel] = {}
    inputs = {last: one_hot_images(load, devices[0].torch, devices[last].torch) for last in (0, 1)}

    def add(
        key: str, implementation: str, strategy: type[ModelParallel], used: list[Device], size: int, step: Step
    ) -> None:
        if implementation not in models:
            stages = resnet50_stages(seed=spec.seed, num_classes=spec.num_classes)
            models[implementation] = strategy(stages, used, lr=spec.lr)
        works[key] = partial(step, models[implementation], *inputs[used[-1].index])
        cases[key] = {"implementation": implementation, "split_size": size, "batch_size": spec.batch_size}
        cases[key]["image_size"] = spec.image_size

    whole = spec.batch_size
    add("single device", "single device", ModelParallel, [devices[0]] * 2, whole, ModelParallel.step)
    add("model parallel", "model parallel", ModelParallel, devices, whole, ModelParallel.step)
    for name, (strategy, at_size) in _implementations().items():
        progress.say(f"proving equality of {name}")
        ours = trained(small, devices, at_size(max(1, small.batch_size // 2)), spec.check_steps, strategy)
        check = same_parameters(_proof_name(name, spec), ours, expected)
        for size in spec.split_sizes:
            add(f"{name} {size}", name, strategy, devices, size, at_size(size))
            checks[f"{name} {size}"] = [check]
    progress.doing(f"{len(works)} variants, in rounds")
    for key, timing in measure.rounds(works, devices=devices, rule=spec.measure).items():
        yield timing.record(cases[key], checks=checks.get(key, []))
    yield from peak_memory(
        (cases[key], work, models[str(cases[key]["implementation"])].devices) for key, work in works.items()
    )


def _proof_name(implementation: str, spec: Spec) -> str:
    return f"{implementation}: parameters after {spec.check_steps} steps, batch norm in eval mode"


def _rank(ctx: RankContext, spec: Spec, small: Workload, expected: list[Tensor]) -> list[Record]:
    """torch.distributed.pipelining with one stage a rank."""
    first = len(list(resnet50_stages(seed=0)[0].parameters()))
    mine = expected[:first] if ctx.rank == 0 else expected[first:]
    return [record for schedule in SCHEDULES for record in _library(ctx, spec, schedule, small, mine)]


def _library(ctx: RankContext, spec: Spec, schedule: str, small: Workload, mine: list[Tensor]) -> list[Record]:
    """One of the library's schedules, every split size that it takes."""
    name = f"torch {schedule}"
    progress.doing(f"{name}: proving equality in float64")
    ours = library_parameters(ctx, small, schedule, spec.check_steps)
    check = ctx.everyone(same_parameters(f"{_proof_name(name, spec)}, rank {ctx.rank}", ours, mine))
    load = Workload(spec.batch_size, spec.image_size, spec.num_classes, spec.lr, spec.seed)
    records, works = [], {}
    module = resnet50_stages(seed=spec.seed, num_classes=spec.num_classes)[ctx.rank]
    for size in spec.split_sizes:
        case: Case = {"implementation": name, "split_size": size, "batch_size": spec.batch_size}
        case["image_size"] = spec.image_size
        note = _unsuited(spec.batch_size, size, schedule)
        if note:
            records.append(Record(case=case, metric="time", unit="s", status="skipped", note=note))
        else:
            works[size] = (case, LibraryPipeline(ctx, load, schedule, size, module).step)
    progress.doing(f"{name}: {len(works)} split sizes")
    timings = measure.rounds({str(s): w for s, (_, w) in works.items()}, devices=[ctx], rule=spec.measure, ranks=ctx)
    return records + [timings[str(s)].record(case, checks=check) for s, (case, _) in works.items()]


def _unsuited(batch_size: int, split_size: int, schedule: str) -> str:
    """Why the library cannot run this split size, or nothing."""
    if batch_size % split_size:
        return f"the library needs equal micro-batches: {split_size} does not divide {batch_size}"
    if schedule == "1f1b" and batch_size // split_size < 2:
        return "the library's 1F1B needs at least as many micro-batches as stages"
    return ""
