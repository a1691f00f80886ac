"""When the time is over, what is compared ends with an interval, and what has not begun is left out and says so."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scalecard.measuring import stopping_rule
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.interleaved_timing import time_epochs, time_rounds
from scalecard.measuring.shared_decisions import ALONE
from scalecard.measuring.stopping_rule import (
    OVER,
    Rule,
    begin_budget,
    budget_left,
    budget_over,
    in_equal_parts,
    part_of_budget,
)
from scalecard.records.statistics import FEWEST
from support.simulated_clock import SimulatedMachine, subject, variants


@pytest.fixture(autouse=True)
def no_limit_afterwards() -> Iterator[None]:
    yield
    begin_budget(0, 0)


@pytest.fixture
def rule(rule: Rule) -> Rule:
    return replace(rule, max_rounds=100, min_rounds=20, min_seconds=1e9, max_seconds=1e9)


def ending(after: int) -> Callable[[], None]:
    """Work in whose n-th call the time is used up."""
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if len(calls) == after:
            os.environ[stopping_rule.DEADLINE] = "0"

    return work


def test_without_a_limit_the_time_is_never_over() -> None:
    begin_budget(0, 100)
    assert budget_left() > 1e9
    assert not budget_over(ALONE)
    assert stopping_rule.pace() == 1


@pytest.mark.parametrize(("seconds", "usual", "pace"), [(10, 40, 0.25), (40, 10, 1), (10, 0, 1)])
def test_the_pace_is_the_part_of_what_one_process_usually_takes(seconds: float, usual: float, pace: float) -> None:
    begin_budget(seconds, usual)
    assert stopping_rule.pace() == pace
    assert 0 < budget_left() <= seconds


def test_every_variant_gets_its_part_of_the_seconds(rule: Rule) -> None:
    begin_budget(1000, 4000)
    machine = SimulatedMachine()
    (timing,) = time_rounds(
        variants(w=machine.work(1.0)), devices=[], rule=replace(rule, min_rounds=6, max_seconds=40), clock=machine.clock
    )
    assert (len(timing.completion), timing.stopped) == (10, "10 s per variant")


def test_slow_work_gets_three_times_as_long_to_reach_the_fewest_rounds(rule: Rule) -> None:
    begin_budget(0, 0)
    for seconds, rounds in ((1.0, 12), (2.5, 12), (3.0, 10), (40.0, 2)):
        machine = SimulatedMachine()
        work, short = variants(w=machine.work(seconds)), replace(rule, min_rounds=12, max_seconds=10)
        (timing,) = time_rounds(work, devices=[], rule=short, clock=machine.clock)
        assert (len(timing.completion), timing.stopped) == (rounds, "10 s per variant"), seconds


def test_what_has_not_begun_is_left_out_and_never_run(rule: Rule) -> None:
    begin_budget(1e-9, 0)
    ran: list[int] = []
    (timing,) = time_rounds(variants(w=lambda: ran.append(1)), devices=[], rule=rule)
    assert not ran
    assert (timing.record().status, timing.record().case) == ("skipped", {"name": "w"})
    assert OVER in timing.record().note
    (epochs,) = time_epochs(variants(w=lambda: ran.append(1)), num_epochs=3, devices=[])
    assert [record.status for record in (epochs.record("epoch_time"), epochs.accuracy_record())] == ["skipped"] * 2
    assert not ran


def test_what_is_being_compared_ends_with_an_interval(rule: Rule) -> None:
    begin_budget(0.05, 0)  # seconds: less than six calls take
    (timing,) = time_rounds(variants(w=lambda: time.sleep(0.02)), devices=[], rule=rule)
    assert (len(timing.completion), timing.stopped) == (FEWEST, OVER)
    assert timing.record().within


def test_epochs_end_after_whole_turns() -> None:
    def build(_at: None) -> Subject:
        return subject(ending(after=4), test=lambda: 0.5)

    several = [Variant(name=name, case={"name": name}, build=build) for name in "ab"]
    timings = time_epochs(several, num_epochs=9, devices=[])
    assert len({len(timing.completion) for timing in timings}) == 1
    assert timings[0].stopped == f"{len(timings[0].completion)} of 9 epochs: {OVER}"
    assert 1 <= len(timings[0].completion) <= 4


def test_a_part_leaves_the_rest_to_those_that_follow_and_parts_nest() -> None:
    begin_budget(1000, 0)
    with part_of_budget(0.5):
        assert 490 < budget_left() <= 500
        with part_of_budget(0.1):
            assert 45 < budget_left() <= 50
        assert 490 < budget_left() <= 500
    with pytest.raises(KeyError), part_of_budget(0.5):
        raise KeyError
    assert 990 < budget_left() <= 1000


def test_each_of_several_gets_an_equal_part_of_what_is_left() -> None:
    begin_budget(100, 0)
    left = [round(budget_left(), -1) for _ in in_equal_parts("abcd", label=str)]
    assert left == [20, 30, 50, 100], "those before took nothing"
    assert 90 < budget_left() <= 100


def test_the_headline_has_all_of_it_and_the_others_what_is_left() -> None:
    begin_budget(100, 0)
    left = [round(budget_left(), -1) for _ in in_equal_parts("abcd", label=str, headline=2)]
    assert left == [50, 100, 50, 100]
    assert [round(budget_left(), -1) for _ in in_equal_parts("a", label=str, headline=2)] == [100], "there is no more"


def test_a_part_of_no_limit_is_no_limit() -> None:
    begin_budget(0, 0)
    with part_of_budget(0.01):
        assert not budget_over(ALONE)


def test_ranks_follow_the_leading_one() -> None:
    begin_budget(1e-9, 0)
    follower = SimpleNamespace(leads=False, maximum=ALONE.maximum)
    assert not budget_over(follower), "its own clock does not count"
    assert budget_over(SimpleNamespace(leads=False, maximum=lambda values: [1.0]))
