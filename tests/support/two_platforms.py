"""Results of two experiments on two platforms, one of which has no second device, and the report of them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from scalecard.analysis import platforms
from scalecard.records.record import Check, Record, Result, Telemetry
from scalecard.report import answers, figure_files, sections
from scalecard.report.render import render

SAMPLES = [0.10, 0.11, 0.12, 0.11, 0.10, 0.13, 0.11]
CHECKS = [Check(name="parameters after 3 steps", dtype="float64", difference=1e-17, tolerance=1e-10)]
SYNTHETIC = "the data set is synthetic"
SKIPPED = "needs 2 devices"


def two_platforms(make_result: Callable[..., Result]) -> list[Result]:
    """`make_result` is the fixture."""
    scratch = [
        timed("epoch_time", devices=1, batch_size=64, data="synthetic"),
        accuracy(devices=1, batch_size=64, data="synthetic"),
        timed("epoch_time", 0.6, devices=2, batch_size=64, data="synthetic"),
        accuracy(devices=2, batch_size=64, data="synthetic"),
    ]
    ring = [timed(algorithm=a, devices=2, bytes=b) for a in ("naive", "ring") for b in (4096, 65536)]
    spec = {"train_images": 100, "batch_size": 64, "bytes": [4096, 65536]}
    return [
        make_result(scratch, experiment="dp_scratch", spec=spec, warnings=[SYNTHETIC]),
        make_result(ring, experiment="allreduce", spec=spec),
        make_result([Record.skipped({"devices": 2}, SKIPPED)], experiment="allreduce", platform="older", spec=spec),
    ]


def timed(metric: str = "time", scale: float = 1.0, **case: str | float) -> Record:
    samples, telemetry = [scale * s for s in SAMPLES], Telemetry(rounds_id="r", stopped="7 rounds")
    return Record(case=case, metric=metric, unit="s", samples=[samples], checks=CHECKS, telemetry=[telemetry])


def accuracy(**case: str | float) -> Record:
    return Record(case=case, metric="accuracy", unit="fraction", samples=[[0.1, 0.5, 0.8]])


def draw(results: Sequence[Result], folder: Path) -> None:
    """The figures for the page."""
    for name in dict.fromkeys(result.experiment for result in results):
        figure = sections.load(name).plot([r for r in results if r.experiment == name])
        figure_files.save(figure, folder / f"{name}.html")
    for name in answers.names():
        figure_files.save(answers.load(name).plot(platforms.current(results)), folder / f"{name}.html")


def write_report(results: Sequence[Result], folder: Path) -> Path:
    """Draw the figures, then write report.html into the folder."""
    draw(results, folder / "figures")
    path = folder / "report.html"
    path.write_text(render(results, folder / "figures"))
    return path
