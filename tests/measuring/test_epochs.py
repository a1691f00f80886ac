"""Epochs are few: each is kept and tested."""

from collections.abc import Callable

from fake_nvml import H100, FakeNvml, box
from scalecard.measuring.epochs import time_epochs
from simulated_clock import variants


def test_every_epoch_is_kept_and_tested() -> None:
    tested: list[str] = []
    timings = time_epochs(
        variants(a=lambda: None, b=lambda: None),
        num_epochs=4,
        devices=[],
        after=lambda variant: tested.append(variant.name),
    )
    assert [(timing.variant.name, len(timing.completion)) for timing in timings] == [("a", 4), ("b", 4)]
    assert {timing.telemetry.stopped for timing in timings} == {"4 epochs"}
    assert sorted(tested) == ["a"] * 4 + ["b"] * 4


def test_slowed_epochs_are_timed_again_and_not_tested_again(install_gpus: Callable[..., FakeNvml]) -> None:
    boards = box(H100, 1)
    boards[0].reasons = 0x8
    install_gpus(boards)
    run, tested = list[int](), list[str]()
    (timing,) = time_epochs(
        variants(a=lambda: run.append(1)),
        num_epochs=2,
        devices=[],
        after=lambda variant: tested.append(variant.name),
    )
    assert (len(run), len(tested), len(timing.completion)) == (4, 2, 2)
    assert timing.telemetry.measured_again.startswith("hardware slowdown on GPU 0")
