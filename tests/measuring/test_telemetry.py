"""The state of the hardware while something is timed, with a fake NVML."""

import os
import time
from collections.abc import Callable

import pytest
from scalecard.measuring.interleaved_timing import time_rounds
from scalecard.measuring.stopping_rule import Rule
from scalecard.measuring.telemetry import watching
from scalecard.records.record import HardwareState
from support.fake_nvml import A100, GIB, GTX, H100, Board, FakeNvml, box
from support.simulated_clock import variants

Install = Callable[..., FakeNvml]


def watched(work: Callable[[], None] = lambda: None) -> HardwareState:
    """The state over a work."""
    with watching() as watch:
        assert watch
        work()
    return watch.summary()


def test_each_gpu_has_its_state(install_gpus: Install) -> None:
    boards = box(H100, 2)
    boards[1].processes, boards[1].width = [(1, 2 * GIB), (os.getpid(), GIB)], (8, 16)
    install_gpus(boards)
    first, second = watched().gpus
    assert first.sm_clock_mhz
    assert first.sm_clock_mhz.median == H100.clock
    assert (first.others_memory_bytes, first.pcie_gen, first.pcie_width) == (0, 5, 16)
    assert (second.others_memory_bytes, second.pcie_width) == (2 * GIB, 8)


def test_a_reason_counts_by_the_share_of_readings_that_showed_it(install_gpus: Install) -> None:
    boards = box(A100, 1)
    install_gpus(boards)
    boards[0].reasons = 0x4

    def cool_down() -> None:
        boards[0].reasons = 0

    state = watched(cool_down)  # read when it starts and when it ends
    assert state.readings == 2
    assert state.gpus[0].reasons == {"power cap": 0.5}


def test_slowdowns_name_the_gpu_and_caps_are_none(install_gpus: Install) -> None:
    boards = box(H100, 2)
    boards[0].reasons, boards[1].reasons = 0x4, 0x80
    install_gpus(boards)
    with watching() as watch:
        pass
    assert watch
    (slowdown,) = watch.slowdowns
    assert slowdown.startswith("power brake on GPU 1")


def test_of_several_ranks_only_the_leading_one_watches() -> None:
    with watching(leads=False) as watch:
        assert watch is None


def test_an_nvml_that_fails_costs_facts_and_nothing_else(install_gpus: Install, rule: Rule) -> None:
    install_gpus(box(H100, 2), fail_after=0)
    (timing,) = time_rounds(variants(w=lambda: None), devices=[], rule=rule)
    assert len(timing.completion) >= rule.min_rounds
    assert timing.state
    assert [gpu.power_w for gpu in timing.state.gpus] == [None, None]
    assert timing.joules is None


@pytest.mark.parametrize(("board", "counts"), [(H100, True), (GTX, False)])
def test_energy_where_the_gpu_counts_it(install_gpus: Install, rule: Rule, board: object, counts: bool) -> None:
    install_gpus(box(board, 1))
    (timing,) = time_rounds(variants(w=lambda: time.sleep(0.01)), devices=[], rule=rule, energy=True)
    assert (timing.metered >= 50) == counts
    assert timing.telemetry.joules == (pytest.approx(0.1 / timing.metered) if counts else None)


@pytest.mark.parametrize(
    "boards", [[], [*box(H100, 1), *box(GTX, 1)], box(GTX, 2)], ids=["none", "one of two", "neither"]
)
def test_without_a_counter_on_each_gpu_there_is_no_energy(install_gpus: Install, boards: list[Board]) -> None:
    install_gpus(boards)
    with watching() as watch:
        assert watch
        assert watch.energy() is None


def test_shares_of_the_cpus_time_stay_between_nothing_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters are read one after the other, and may go back by a rounding error."""
    readings = iter([(10.0, 1.0, 100.0), (10.0 - 1e-9, 3.0, 101.0)])
    monkeypatch.setattr("scalecard.hardware.host.cpu_seconds", lambda: next(readings))
    state = watched()
    assert (state.cpu_busy, state.steal) == (0.0, 1.0)


def test_what_sampling_costs_is_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with watching() as watch:
        assert watch
    monkeypatch.setattr(watch, "_cost", 0.5)
    monkeypatch.setattr(watch, "_started", time.monotonic() - 10)
    assert watch.summary().sampler_cost == pytest.approx(0.05, rel=0.01)
