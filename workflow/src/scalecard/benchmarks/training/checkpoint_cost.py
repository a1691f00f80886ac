"""What a checkpoint costs training, saved in one file, in parts, and in parts beside training; and loading it back.

A checkpoint is proven by what comes back: once training has gone on, loading must give every parameter and optimiser
state the value that it had when the checkpoint was begun, bit for bit. Buffers get that of one of the ranks, whose
running statistics of batch normalisation differ: there is one of each in a checkpoint. Its files must be at least as
large as what training keeps; in parts no rank may have written much more than its share, and beside training another
thread must have written them.

    seconds lost = steps_time, saving "asynchronous" - steps_time, saving "none"

That is the copy to the host's memory, steps that are slower while a thread writes, and what is left to write after as
about twice as many steps as usually take as long as that.
"""

import math
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from scalecard.benchmarks.training import builders
from scalecard.benchmarks.training.run_group import Group
from scalecard.benchmarks.training.strategy import STEP, UNSYNCHRONISED, References, Setting, StrategyBuilder
from scalecard.distributed.context import RankContext
from scalecard.measuring.case_variant import Subject, local
from scalecard.measuring.counting import UPDATES
from scalecard.measuring.proof import Void, largest_difference
from scalecard.measuring.stopping_rule import budget_over
from scalecard.measuring.timer import Bench
from scalecard.parallel.saving import Checkpoint, InParts, OneFile
from scalecard.records.axes import Case
from scalecard.records.record import Check, Record
from scalecard.records.statistics import FEWEST
from scalecard.records.strategies import DDP, FSDP_PARAMETERS, SINGLE, Strategy
from scalecard.workloads.reference import trainable
from scalecard.workloads.workload import HOST, Workload

SAVE, RESTORE, STEPS, SIZE = "save_time", "restore_time", "steps_time", "checkpoint_size"
ONE_FILE, IN_PARTS, BESIDE, NONE = "one file", "in parts", "asynchronous", "none"
MOST_SECONDS = 10.0  # of steps beside which a checkpoint is written
STILL_WRITING = "longer than its steps, and all of the rest counts as lost: at most this"
ROOM = 5  # times what training keeps, for the files of all forms
OVERHEAD_EACH = 4096  # bytes that the files may have besides for each tensor of each rank
AS_TIMED = "float32"  # what is kept, whatever products compute in
NAME = f".scalecard-checkpoints-{platform.node()}"


def records(group: Group, data_dir: str) -> Iterator[Record]:
    """Times of all forms, with one workload on these ranks, as many samples on each as one device has.

    Steps are those on one batch, also if batches have unequal lengths.
    """
    group = replace(group, workload=replace(group.workload, varies=False))
    skipped, size = partial(Record.skipped, group.case, metric=SAVE), _whole_bytes(group.workload)
    with _folder(Path(data_dir), group.ctx) as (folder, free):
        if free < ROOM * size:
            need, room = ROOM * size / 2**30, free / 2**30
            yield skipped(f"data_dir has room for {room:.3g} GiB, and checkpoints need {need:.3g} GiB")
            return
        saving = Saving(group.ctx, folder, size)
        if not budget_over(group.ctx):
            saving.choose_steps(group)
        brief = replace(group, rule=replace(group.rule, min_rounds=min(FEWEST, group.rule.min_rounds)))
        yield from brief.times(saving.forms())
        for form, found in saving.sizes.items():
            yield Record(case={**group.case, "saving": form}, metric=SIZE, unit="B", samples=[[float(found)]])


def _whole_bytes(workload: Workload) -> int:
    """What training keeps of a model: parameters, and the optimiser's states as far as they are as large as these."""
    model = workload.network(HOST, on_meta=True)
    states = workload.optimizer_settings.state_bytes(trainable(model))
    return states + sum(parameter.nbytes for parameter in model.parameters())


@contextmanager
def _folder(data_dir: Path, ctx: RankContext) -> Iterator[tuple[Path, int]]:
    """An empty one in data_dir, and the bytes that fit in; without what a killed run of this machine has left there.

    Without bytes, if nothing can be written.
    """
    folder, free = data_dir / NAME, 0
    if ctx.leads:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            free = shutil.disk_usage(folder).free
        except OSError:
            pass
    try:
        yield folder, ctx.all_gather(free)[0]
    finally:
        if ctx.leads:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Saving:
    """The forms of a checkpoint of at least `whole` bytes, in this folder; `sizes` of those that were proven.

    One that is written beside training has `num_steps` to do so, and `note` says if they may be too few.
    """

    ctx: RankContext
    folder: Path
    whole: int
    num_steps: int = 1
    note: str = ""
    sizes: dict[str, int] = field(default_factory=dict)

    def forms(self) -> Iterator[StrategyBuilder]:
        """In one file of DDP, in parts of FSDP2; of one rank alone both of the single device."""
        for form, kind in ((ONE_FILE, DDP), (IN_PARTS, FSDP_PARAMETERS)):
            yield self._builder(kind, SAVE, form)
            yield self._builder(kind, RESTORE, form)
        for form in (NONE, BESIDE):
            yield self._builder(FSDP_PARAMETERS, STEPS, form)

    def _builder(self, kind: Strategy, metric: str, form: str) -> StrategyBuilder:
        axes: Case = {"saving": form, **({"steps": self.num_steps} if metric == STEPS else {})}
        name, note = SINGLE if self.ctx.alone else kind, self.note if form == BESIDE else ""
        build = partial(self._subject, kind, metric, form)
        return StrategyBuilder(name, build, metric=metric, axes=axes, note=note, trains=self._trained(kind).build)

    def _subject(self, kind: Strategy, metric: str, form: str, references: References, at: Setting) -> Subject:
        subject, checkpoint = self._checkpoint(form, kind, references, at)
        if metric == STEPS:
            steps = self._repeated(subject)
            return self._saved_beside(subject, steps, checkpoint) if form == BESIDE else steps
        if metric == RESTORE:
            checkpoint.save()
        work = checkpoint.save if metric == SAVE else checkpoint.load
        return Subject(work=work, prove=partial(self._proven, form, checkpoint, checkpoint.save, subject))

    def _trained(self, kind: Strategy) -> StrategyBuilder:
        """What trains as the strategy does; of one rank a model that is not wrapped."""
        wanted = (DDP, UNSYNCHRONISED) if self.ctx.alone else (kind, STEP)
        return next(one for one in builders.on_ranks(self.ctx) if (one.kind, one.metric) == wanted)

    def _checkpoint(self, form: str, kind: Strategy, references: References, at: Setting) -> tuple[Subject, Checkpoint]:
        """A subject that trains, and the checkpoint of what it trains."""
        made = OneFile if form == ONE_FILE else InParts
        folder = self.folder / form.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        subject = self._trained(kind).build(references, at)
        assert subject.module, "it is watched"
        return subject, made(subject.module, subject.optimizers[0], folder, self.ctx)

    def choose_steps(self, group: Group) -> None:
        """As many as take twice as long as saving in parts; one stays where the workload cannot be trained or saved.

        A power of two, so that other runs have as many.
        """
        strategy = self._trained(FSDP_PARAMETERS)
        at = group.setting(group.workload.batch_size, group.scalings[-1], strategy)
        if group.trials.of(strategy, at).refused:
            return
        subject, checkpoint = self._checkpoint(IN_PARTS, FSDP_PARAMETERS, group.references, at)
        bench, times = Bench([self.ctx], self.ctx), []
        try:
            for work in (subject.work, checkpoint.save):
                bench.block(work, 1)
                times.append(bench.block(work, 2).completion)
        except RuntimeError:  # of all ranks; each form says so of itself
            return
        step, save = times
        self.num_steps = 2 ** math.ceil(math.log2(max(1.0, min(2 * save, MOST_SECONDS) / step)))
        self.note = STILL_WRITING if self.num_steps * step < save else ""

    def _repeated(self, subject: Subject) -> Subject:
        """Steps of the subject, which is proven by one of them."""

        def work() -> None:
            for _ in range(self.num_steps):
                subject.work()

        once = {name: each for name, each in subject.expected.items() if name in ("forwards", *UPDATES)}
        return replace(subject, work=work, expected={name: self.num_steps * each for name, each in once.items()})

    def _saved_beside(self, subject: Subject, steps: Subject, checkpoint: Checkpoint) -> Subject:
        assert isinstance(checkpoint, InParts), "the form that can be started"
        beside = list[bool]()

        def work() -> None:
            started = checkpoint.start()
            try:
                steps.work()
            finally:  # also of steps that fail: the ranks would exchange what they do next while it is being written
                written = started.wait()
            beside.append(written)

        def prove() -> Iterator[Check]:
            yield from subject.prove()
            yield from self._proven(BESIDE, checkpoint, work, subject)
            alone = float(not all(beside))
            yield Check(name="written by the thread that trains", dtype=AS_TIMED, difference=alone, tolerance=0.0)

        return replace(steps, work=work, prove=prove)

    def _proven(
        self, form: str, checkpoint: Checkpoint, save: Callable[[], object], subject: Subject
    ) -> Iterator[Check]:
        """What is loaded is what was saved, in files of the right size."""
        subject.work()  # or its optimiser might have no states yet
        states, parameters = _copies(checkpoint.states()), _copies(checkpoint.module.parameters())
        buffers = self.ctx.all_gather(_copies(checkpoint.module.buffers()))
        save()
        sizes = checkpoint.sizes()
        subject.work()
        self.ctx.synchronize()
        (moved,) = self.ctx.maximum([largest_difference(_copies(checkpoint.module.parameters()), parameters)])
        if not moved:
            raise Void("void, training did not change what was saved")
        checkpoint.load()
        check = partial(Check, dtype=AS_TIMED)
        now = [*_copies(checkpoint.states()), *_copies(checkpoint.module.parameters())]
        loaded = largest_difference(now, [*states, *parameters])
        yield check(name="loaded after a checkpoint", difference=loaded, tolerance=0.0)
        for buffer, *before in zip(_copies(checkpoint.module.buffers()), *buffers, strict=True):
            nearest = min(largest_difference([buffer], [one]) for one in before)
            yield check(name="buffers loaded after a checkpoint", difference=nearest, tolerance=0.0)
        ranks, whole = self.ctx.world_size, sum(sizes)
        yield check(name="missing of a checkpoint's size", difference=max(0.0, 1 - whole / self.whole), tolerance=0.0)
        overhead = OVERHEAD_EACH * ranks * len(now) / self.whole
        if isinstance(checkpoint, InParts):
            uneven, half = max(sizes) / whole - 1 / ranks, (1 - 1 / ranks) / 2
            yield check(name="largest part of a checkpoint", difference=uneven, tolerance=half + overhead)
        if not loaded:
            self.sizes[form] = whole


def _copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Of what this rank has of them, in the host's memory."""
    return [local(tensor).detach().to("cpu", copy=True) for tensor in tensors]
