"""Epochs are few: each is kept and tested."""

from collections.abc import Callable

from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.interleaved_timing import time_epochs
from support.fake_nvml import H100, FakeNvml, box
from support.simulated_clock import subject


def scored_variants(*names: str) -> list[Variant]:
    """Each one's accuracy is the number of times that it was tested, of which the first only counts operations."""

    def build(_at: None) -> Subject:
        tests = iter(range(1, 100))
        return subject(lambda: None, test=lambda: next(tests))

    return [Variant(name=name, case={"name": name}, build=build) for name in names]


def test_every_epoch_is_kept_and_tested() -> None:
    timings = time_epochs(scored_variants("a", "b"), num_epochs=4, devices=[])
    assert [(timing.variant.name, len(timing.completion)) for timing in timings] == [("a", 4), ("b", 4)]
    assert {timing.telemetry.stopped for timing in timings} == {"4 epochs"}
    assert [timing.accuracy_record().samples for timing in timings] == [[[2, 3, 4, 5]], [[2, 3, 4, 5]]]


def test_slowed_epochs_are_timed_again_and_not_tested_again(install_gpus: Callable[..., FakeNvml]) -> None:
    boards = box(H100, 1)
    boards[0].reasons = 0x8
    install_gpus(boards)
    (timing,) = time_epochs(scored_variants("a"), num_epochs=2, devices=[])
    assert len(timing.completion) == 2
    assert timing.accuracies == [2, 3], "of the first epochs"
    assert timing.telemetry.measured_again.startswith("hardware slowdown on GPU 0")
