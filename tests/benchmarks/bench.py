"""`make bench`: what the project promises of its own speed, as ratios measured side by side in one run.

Result      a table on the terminal; exit status 1 if a promise is not kept
Reproduce   make bench          (about 3 minutes besides the workflow's own run; --dag smoke|default|none)
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import torch
from PIL import Image
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import probe
from scalecard.measuring.rounds import time_rounds
from scalecard.measuring.rule import Rule
from scalecard.measuring.variant import Variant
from scalecard.records.files import is_result_file, load
from scalecard.records.record import Result
from scalecard.training import datasets
from scalecard.training.data_parallel import ScratchDataParallel
from scalecard.training.models import lenet_parameters
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import ToTensor

ROOT = Path(__file__).parents[2]
BATCH, LR = 256, 0.2
RULE = Rule(
    warmup_seconds=0.5,
    block_seconds=0.02,
    min_rounds=6,
    max_rounds=12,
    min_seconds=1,
    max_seconds=30,
    precision=0.01,
    processes=1,
)


class Textbook(Dataset[tuple[torch.Tensor, int]]):
    """One image at a time through PIL and ToTensor, as torchvision's Fashion-MNIST gives them."""

    def __init__(self, split: datasets.Split) -> None:
        self.images, self.labels, self.transform = split.images[:, 0].numpy(), split.labels.tolist(), ToTensor()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def faster(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    """How many times as fast ours is: the median ratio over interleaved rounds."""
    variants = [Variant(name=name, case={}, work=work) for name, work in (("theirs", theirs), ("ours", ours))]
    samples = [timing.completion for timing in time_rounds(variants, devices=[], rule=RULE)]
    return statistics.median_high(theirs / ours for theirs, ours in zip(*samples, strict=True))


def input_path(split: datasets.Split) -> float:
    loader = DataLoader(Textbook(split), BATCH, shuffle=True)
    order = torch.Generator().manual_seed(0)
    return faster(lambda: [x.sum() for x, _ in split.batches(BATCH, order)], lambda: [x.sum() for x, _ in loader])


def textbook_lenet(images: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    """LeNet as the textbook writes it, in the layout that its loader gives."""
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters
    h1 = functional.avg_pool2d(functional.relu(functional.conv2d(images, w1, b1)), 2, 2)
    h2 = functional.avg_pool2d(functional.relu(functional.conv2d(h1, w2, b2)), 2, 2)
    h3 = functional.relu(h2.reshape(len(h2), -1).mm(w3) + b3)
    return h3.mm(w4) + b4


def lenet_epoch(split: datasets.Split) -> float:
    """All the devices, which share the cores that the textbook's loop has alone."""
    loader = DataLoader(Textbook(split), BATCH, shuffle=True)
    order = torch.Generator().manual_seed(0)
    parameters = [p.requires_grad_() for p in lenet_parameters(seed=0)]

    def textbook() -> None:
        for images, labels in loader:
            loss = functional.cross_entropy(textbook_lenet(images, parameters), labels, reduction="sum")
            loss.backward()
            with torch.no_grad():
                for parameter in parameters:
                    parameter -= LR / len(labels) * parameter.grad
                    parameter.grad.zero_()

    with open_devices(probe()) as devices:
        model = ScratchDataParallel(devices, lenet_parameters(seed=0), lr=LR)

        def ours() -> None:
            for batch in split.batches(BATCH, order):
                model.step(batch)
            for device in devices:
                device.synchronize()

        return faster(ours, textbook)


def overhead_of_measuring() -> float:
    """Wall time of time_rounds() over that of a bare loop of as many calls, alternating; the smallest of five."""
    x = torch.rand(256, 256)
    rule = replace(RULE, warmup_seconds=0, min_rounds=40, max_rounds=40, min_seconds=9, max_seconds=99)
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        for _ in range(8):
            x @ x

    ratios = []
    for _ in range(5):
        calls, start = 0, time.perf_counter()
        time_rounds([Variant(name="work", case={}, work=work)], devices=[], rule=rule)
        measured, count = time.perf_counter() - start, calls
        start = time.perf_counter()
        for _ in range(count):
            work()
        ratios.append(measured / (time.perf_counter() - start))
    return min(ratios) - 1


def dag_over_experiments(scale: str) -> float:
    """Wall time of the whole workflow over the sum of the experiments' own time, in a copy of the project."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), folder], check=True)
        extra = ["--configfile", "tests/smoke.yaml"] if scale == "smoke" else []
        start = time.perf_counter()
        command = [sys.executable, "-m", "snakemake", "--cores", "all", *extra]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=os.environ)
        wall = time.perf_counter() - start
        own = sum(_seconds(load(path)) for path in Path(folder, "results").glob("*/*.json") if is_result_file(path))
    print(f"  the workflow took {wall:.0f} s, its experiments {own:.0f} s")
    return wall / own


def _seconds(result: Result) -> float:
    return (datetime.fromisoformat(result.finished) - datetime.fromisoformat(result.started)).total_seconds()


def main() -> int:
    """Measure, print the table, and say whether every promise is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dag", choices=["default", "smoke", "none"], default="default")
    scale = parser.parse_args().dag
    split = datasets.synthetic().train.first(10_000)
    rows = [
        ("input path against DataLoader with PIL and ToTensor", input_path(split), ">=", 10.0),
        ("LeNet epoch against the textbook's loop", lenet_epoch(split), ">=", 3.0),
        ("what measuring adds to a bare loop", overhead_of_measuring(), "<=", 0.01),
    ]
    if scale != "none":
        rows.append(("workflow over its experiments", dag_over_experiments(scale), "<=", 1.35))
    kept = True
    for what, value, sign, promise in rows:
        good = value >= promise if sign == ">=" else value <= promise
        kept &= good
        print(f"{what:55} {value:8.3f}   promised {sign} {promise:g}   {'kept' if good else 'NOT KEPT'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
