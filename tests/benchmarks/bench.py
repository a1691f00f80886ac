"""`make bench`: what the project promises of its own speed, as ratios measured side by side in one run.

Each ratio is the median over pairs that were measured one right after the other, with its interval at 95 %. A promise
is kept if the whole interval keeps it, so a machine too busy to tell does not keep it either.

Result      a table on the terminal; exit status 1 if a promise is not kept
Reproduce   make bench          (about 7 minutes besides the workflow's own run; --dag smoke|default|none)
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from forecasts import on_cpu_ranks, on_simulated_clusters
from scalecard import experiments
from scalecard.experiments import pipeline
from scalecard.hardware.devices import Device, open_devices
from scalecard.hardware.machine import probe
from scalecard.jobs.config import merged_block
from scalecard.measuring.case_variant import Subject, Variant, Work
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.stopping_rule import Rule
from scalecard.parallel.data_parallel import ScratchDataParallel
from scalecard.records.files import is_result_file, load
from scalecard.records.record import Check
from scalecard.records.schedules import SCHEDULES
from scalecard.records.statistics import Interval, Ratio, paired_ratio
from scalecard.workloads import datasets
from scalecard.workloads.builtin.lenet import lenet_parameters
from support.shapes import SHAPES
from torch.utils.data import DataLoader

ROOT = Path(__file__).parents[2]
BATCH, LR = 256, 0.2
RULE = Rule(
    warmup_seconds=0.5,
    block_seconds=0.02,
    min_rounds=12,
    max_rounds=40,
    min_seconds=1,
    max_seconds=10,
    precision=0.01,
    processes=1,
)


@dataclass(frozen=True)
class Row:
    """A ratio and what is promised of it: at least so much (`sign` is '>=') or at most ('<=')."""

    what: str
    ratio: Ratio
    sign: str
    promise: float

    @property
    def kept(self) -> bool:
        interval = self.ratio.interval
        if not interval:
            return False
        return interval.low >= self.promise if self.sign == ">=" else interval.high <= self.promise

    def __str__(self) -> str:
        interval = self.ratio.interval
        told = f"{interval.low:.3f} to {interval.high:.3f}" if interval else "no interval"
        promised = f"promised {self.sign} {self.promise:g}   {'kept' if self.kept else 'NOT KEPT'}"
        return f"{self.what:55} {self.ratio.value:7.3f} ({told})   {promised}"


def timed(works: dict[str, Work], rule: Rule = RULE, devices: Sequence[Device] = ()) -> dict[str, list[float]]:
    """The completion times of each work, in interleaved rounds. The only place that builds variants.

    What they compute is proven in tests; here it is only checked that they can be called.
    """
    ran = [Check(name="ran", dtype="float32", difference=0.0, tolerance=0.0)]

    def build(work: Work, _at: None) -> Subject:
        return Subject(work=work, prove=lambda: ran)

    variants = [Variant(name=name, case={}, build=partial(build, work)) for name, work in works.items()]
    return {timing.variant.name: timing.completion for timing in time_rounds(variants, devices=devices, rule=rule)}


def input_path(split: datasets.Split) -> Ratio:
    """How many times as fast ours is."""
    loader = DataLoader(datasets.OneByOne(split), BATCH, shuffle=True)
    order = torch.Generator().manual_seed(0)
    seconds = timed(
        {
            "theirs": lambda: [x.sum() for x, _ in loader],
            "ours": lambda: [x.sum() for x, _ in split.batches(BATCH, order)],
        }
    )
    return paired_ratio([seconds["theirs"]], [seconds["ours"]])


def _each(work: Callable[[Any], object], batches: Iterable[Any]) -> None:
    for batch in batches:
        work(batch)


def lenet_epoch(split: datasets.Split) -> Ratio:
    """Which share of the possible speed-up over the textbook's way to load an epoch of ours reaches.

    loader    one pass over the textbook's DataLoader that does nothing with the batches
    compute   our training steps of an epoch, on batches that are already made and lie on the first device
    ours      the same steps on batches that the first device makes from the resident images: an epoch of dp_scratch

    The textbook's loop loads, then computes: loader + compute. However fast loading gets, computing remains, so the
    speed-up is at most (loader + compute)/compute. Ours is (loader + compute)/ours, so its share of this bound is
    compute/ours, round by round. The computing is ours on both sides: that the textbook's own is slower gains nothing.
    """
    loader = DataLoader(datasets.OneByOne(split), BATCH, shuffle=True)
    order = torch.Generator().manual_seed(0)
    with open_devices(probe()) as devices:
        model = ScratchDataParallel(devices, lenet_parameters(seed=0), lr=LR)
        resident = split.to(devices[0].torch)
        made = list(resident.batches(BATCH, order))

        def epoch() -> None:
            for index in torch.randperm(len(resident), generator=order).to(resident.labels.device).split(BATCH):
                model.step(devices[0].submit(resident.batch, index))

        works: dict[str, Work] = {
            "ours": epoch,
            "compute": lambda: _each(model.step, made),
            "loader": lambda: _each(id, loader),
        }
        seconds = timed(works, devices=devices)
    both = [a + b for a, b in zip(seconds["loader"], seconds["compute"], strict=True)]
    speedup, bound = (paired_ratio([both], [seconds[name]]).value for name in ("ours", "compute"))
    print(f"  LeNet: {speedup:.2f} times as fast as loader + compute, at most {bound:.2f} is possible")
    return paired_ratio([seconds["compute"]], [seconds["ours"]])


def cost_of_measuring() -> tuple[Ratio, Ratio]:
    """What time_rounds() adds around the calls, and whether a call takes longer in it than in a bare loop.

    around   the wall time of time_rounds(), with all that it does, over the time inside the calls of the same run
    inside   the time inside a call while measuring (the machine's state is read meanwhile), over that in a bare loop

    Their product is what measuring costs. The first shares each run's drift, so it is known to 0.1 %; the second
    compares two runs, between which a shared machine changes by a percent or two. A pair is 80 rounds of 20 ms, with
    the checks whether their ratios are precise enough, and a bare loop of as many calls; in turn one and the other is
    first. The work is hashing by one thread, which varies least on a busy machine (see aa.py); its data is larger than
    a core's own caches, as a training step's is, so what happens between two blocks is as slow as it is there.
    """
    data, took = bytes(4_000_000), list[float]()

    def work() -> None:
        start = time.perf_counter()
        hashlib.sha256(data).digest()
        took.append(time.perf_counter() - start)

    def run(loop: Callable[[], object]) -> tuple[float, float]:
        took.clear()
        start = time.perf_counter()
        loop()
        return time.perf_counter() - start, sum(took)

    rule = replace(RULE, warmup_seconds=0.1, max_rounds=80, max_seconds=99, precision=1e-9)
    measure = partial(timed, {"work": work}, rule)
    run(measure)
    bare = partial(_each, lambda _: work(), range(len(took)))
    around, inside = list[tuple[float, float]](), list[tuple[float, float]]()
    for number in range(24):
        per_call = {}
        for loop in (measure, bare) if number % 2 else (bare, measure):
            wall, within = run(loop)
            per_call[loop] = within / len(took)
            if loop is measure:
                around.append((wall, within))
        inside.append((per_call[measure], per_call[bare]))
    return _ratio(around), _ratio(inside)


def _ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    new, old = zip(*pairs, strict=True)
    return paired_ratio([new], [old])


def pipelines() -> dict[str, Ratio]:
    """How many times as fast ours are as torch.distributed.pipelining's, by schedule.

    The experiment `pipeline` itself, at its quick scale and with this file's rule: cut after layer2, two ranks, each
    micro-batch half of the batch. The first rank drives both devices with ours in the rounds in which both ranks
    run the library's; each was proven before.
    """
    block = merged_block(yaml.safe_load((ROOT / "config.yaml").read_text()), "pipeline", "quick")
    sizes = [block["batch_size"] // 2]
    values = {**block, "measure": asdict(RULE), "split_sizes": sizes, "balanced_sizes": sizes}
    machine = replace(probe(), num_devices=2)
    records = pipeline.beside_the_library(experiments.build("pipeline", json.dumps(values)), machine)
    of = {record.case["strategy"]: record for record in records}
    return {name: of[f"torch {name}"].over(of[name]) for name in SCHEDULES}


def whole_workflow(scale: str) -> Iterator[Row]:
    """In a copy of the project, once: its wall time over the sum of the experiments' own; what a default run shows."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), folder], check=True)
        extra = ["--configfile", "tests/smoke.yaml"] if scale == "smoke" else []
        start = time.perf_counter()
        command = [sys.executable, "-m", "snakemake", "--cores", "all", *extra]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=os.environ)
        wall = time.perf_counter() - start
        every = [load(path) for path in Path(folder, "results").glob("*/*.json") if is_result_file(path)]
    own = sum(result.seconds for result in every)
    print(f"  the workflow took {wall:.0f} s, its experiments {own:.0f} s")
    yield Row("workflow over its experiments", _exactly(wall / own), "<=", 1.35)
    results = {result.experiment: result for result in every}
    for name, value, least in SHAPES if scale == "default" else ():
        yield Row(name, _exactly(float(value(results))), ">=", least)


def _exactly(value: float) -> Ratio:
    """Of what is measured once, or is a figure over many cases."""
    return Ratio(value, Interval(value, value))


def main() -> int:
    """Measure, print the table, and say whether every promise is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dag", choices=["default", "smoke", "none"], default="default")
    scale = parser.parse_args().dag
    split = datasets.synthetic().train.first(10 * BATCH)
    around, inside = cost_of_measuring()
    rows = [
        Row("input path against DataLoader with PIL and ToTensor", input_path(split), ">=", 10.0),
        Row("LeNet epoch, share of the possible speed-up", lenet_epoch(split), ">=", 0.9),
        Row("measuring, around its calls", around, "<=", 1.01),
        Row("a call while measuring against one in a bare loop", inside, "<=", 1.03),
        *(
            Row(f"our {name} against torch.distributed.pipelining's", ratio, ">=", 1.0)
            for name, ratio in pipelines().items()
        ),
    ]
    for where, judged in (("simulated clusters", on_simulated_clusters), ("CPU ranks", on_cpu_ranks)):
        error, inside = judged()
        rows.append(Row(f"forecasts of {where}: median error", _exactly(error), "<=", 0.05))
        rows.append(Row(f"forecasts of {where}: share inside their bands", _exactly(inside), ">=", 0.9))
    if scale != "none":
        rows += whole_workflow(scale)
    for row in rows:
        print(row)
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
