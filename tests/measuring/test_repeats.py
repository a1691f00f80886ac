"""What slows a GPU down is measured once more, but not in every group of a machine that is always slowed down."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scalecard.measuring import interleaved_timing, shared_decisions
from scalecard.measuring.case_variant import Timing, Variant
from scalecard.measuring.interleaved_timing import time_epochs, time_rounds
from scalecard.measuring.stopping_rule import Rule
from scalecard.measuring.timer import Bench
from support.fake_nvml import H100, Board, FakeNvml, box
from support.simulated_clock import subject

THROTTLED = 0x40  # by heat, in NVML's bits


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of its own, of which all processes share the decisions."""
    monkeypatch.setenv(shared_decisions.FOLDER, str(tmp_path))


@pytest.fixture
def laptop(install_gpus: Callable[..., FakeNvml]) -> Board:
    (board,) = box(H100, 1)
    board.reasons = THROTTLED
    install_gpus([board])
    return board


def variants(work: Callable[[], object] = lambda: None) -> list[Variant]:
    return [Variant(name="a", case={"name": "a"}, build=lambda _at: subject(work, test=lambda: 0.5))]


def rounds() -> list[Timing]:
    short = Rule(
        warmup_seconds=0,
        block_seconds=0,
        min_rounds=6,
        max_rounds=6,
        min_seconds=0,
        max_seconds=1,
        precision=0.5,
        processes=1,
    )
    return time_rounds(variants(), devices=[], rule=short)


def epochs() -> list[Timing]:
    return time_epochs(variants(), num_epochs=2, devices=[])


@pytest.mark.parametrize("group", [rounds, epochs])
def test_a_machine_that_is_always_slowed_down_measures_one_group_twice(
    laptop: Board, capsys: pytest.CaptureFixture[str], group: Callable[[], list[Timing]]
) -> None:
    again = [timing.measured_again for _ in range(3) for timing in group()]
    assert [bool(text) for text in again] == [True, False, False]
    (told,) = (line for line in capsys.readouterr().out.splitlines() if "nothing is measured once more" in line)
    assert "thermal slowdown (hardware) on GPU 0" in told


def test_what_was_in_vain_in_one_kind_of_group_is_left_out_in_the_other(laptop: Board) -> None:
    assert rounds()[0].measured_again
    (timing,) = epochs()
    assert not timing.measured_again
    assert timing.state
    assert timing.state.gpus[0].reasons == {"thermal slowdown (hardware)": 1.0}, "the slowdown is recorded"
    assert timing.record().status == "ok"


def test_a_slowdown_that_goes_by_is_measured_once_more_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a server whose power supply holds a GPU back once in a while."""
    seen = iter(["power brake on GPU 0", "", "power brake on GPU 0", "", ""])
    monkeypatch.setattr(Bench, "agreed_slowdown", lambda bench, watch: next(seen))
    assert [bool(rounds()[0].measured_again) for _ in range(3)] == [True, True, False]


def test_every_rank_does_as_the_leading_one_says(laptop: Board) -> None:
    """Ranks on other nodes have decisions of their own."""
    rounds()
    for leading_one, worthwhile in ((1.0, False), (0.0, True)):
        follower: Any = SimpleNamespace(leads=False, maximum=lambda values, answer=leading_one: [answer])
        assert interleaved_timing.worth_repeating("a GPU was slowed down", Bench([], follower)) == worthwhile


def test_another_run_tries_again(laptop: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds()
    (tmp_path / "another").mkdir()
    monkeypatch.setenv(shared_decisions.FOLDER, str(tmp_path / "another"))
    assert rounds()[0].measured_again
