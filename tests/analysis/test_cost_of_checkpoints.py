"""What a checkpoint costs, on made-up results whose truth is known, and what is said of it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from scalecard.analysis.checkpoint_cost import Cost, cheapest, costs
from scalecard.analysis.platforms import PlatformResults
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.report.answers import save
from support.eight_gpus import measured, timed

Make = Callable[..., Result]
PLACE: Case = {"workload": "gpt", "devices": 8, "scaling": "weak", "batch_size": 64, "unit": "tokens", "units": 65536}
SIZE = 3e9


def records(copy: float = 0.05, slower: float = 1.04) -> Iterator[Record]:
    """In one file in 3.6 s, in parts in 0.9 s, and beside 40 steps of 50 ms."""
    whole: Case = {**PLACE, "strategy": "DDP"}
    parts: Case = {**PLACE, "strategy": "FSDP parameters"}
    yield timed({**whole, "saving": "one file"}, 3.6, "saving", metric="save_time")
    yield timed({**whole, "saving": "one file"}, 1.2, "saving", metric="restore_time")
    yield timed({**parts, "saving": "in parts"}, 0.9, "saving", metric="save_time")
    yield timed({**parts, "saving": "none", "steps": 40}, 2.0, "saving", metric="steps_time")
    yield timed({**parts, "saving": "asynchronous", "steps": 40}, copy + slower * 2.0, "saving", metric="steps_time")
    for way in ("one file", "in parts", "asynchronous"):
        case: Case = {"workload": "gpt", "devices": 8, "saving": way}
        yield Record(case=case, metric="checkpoint_size", unit="B", samples=[[SIZE]])


def found(make_result: Make, every: Iterator[Record]) -> tuple[PlatformResults, list[Cost]]:
    results = measured(make_result, strategies=list(every))
    result = results.of("strategies")
    assert result is not None
    return results, costs(result)


def test_beside_training_what_is_lost_is_how_much_longer_the_same_steps_take(make_result: Make) -> None:
    _, (one_file, parts, beside) = found(make_result, records())
    assert [each.way for each in (one_file, parts, beside)] == ["one file", "in parts", "asynchronous"]
    assert one_file.lost == pytest.approx(3.6, rel=0.01)
    assert one_file.restore
    assert one_file.restore.median == pytest.approx(1.2, rel=0.01)
    assert parts.lost == pytest.approx(0.9, rel=0.01)
    assert beside.lost == pytest.approx(0.13, rel=0.15)
    assert beside.interval
    assert beside.interval.low < beside.lost < beside.interval.high
    assert beside.slower
    assert beside.slower.value == pytest.approx(1.065, rel=0.01)
    assert {each.size for each in (one_file, parts, beside)} == {SIZE}
    assert cheapest([one_file, parts, beside], "gpt") is beside


def test_every_half_hour_it_costs_that_share_of_the_time(make_result: Make) -> None:
    _, (one_file, *_) = found(make_result, records())
    assert one_file.every_half_hour == pytest.approx(3.6 / 1803.6, rel=0.01)


def test_the_sentence_names_the_cheapest_way_and_the_others(make_result: Make) -> None:
    results, _ = found(make_result, records(copy=0.2))
    (said,) = save.findings(results)
    assert said.text.startswith(
        "gpt on 8 devices: saving 2.79 GiB beside training every 30 minutes costs 0.02 % of the"
    )
    assert said.text.endswith("each time (in one file 3.60 s, in parts 900 ms).")
    (table,) = save.tables(results)
    assert [row[1].text for row in table.rows] == ["in one file", "in parts", "beside training"]


def test_what_costs_nothing_is_not_said_to_save_time(make_result: Make) -> None:
    results, (*_, beside) = found(make_result, records(copy=0, slower=0.98))
    assert beside.lost < 0
    (said,) = save.findings(results)
    assert said.text.startswith("gpt on 8 devices: saving 2.79 GiB beside training every 30 minutes costs no time")
    assert beside.every_half_hour == 0, "even with its error"


def test_what_may_cost_more_is_not_the_cheapest(make_result: Make) -> None:
    """Beside training 0.13 s, give or take so much that in parts, which takes 0.9 s, is the surer choice."""

    def scattered(record: Record) -> Record:
        if not record.matches(saving="asynchronous", steps=40):
            return record
        samples = [[value * (1 + 0.6 * (place % 3 - 1)) for place, value in enumerate(one)] for one in record.samples]
        return replace(record, samples=samples)

    results, (_, parts, beside) = found(make_result, map(scattered, records()))
    assert beside.sure is False
    assert beside.lost < parts.lost < beside.at_most
    assert cheapest([parts, beside], "gpt") is parts
    shares = {row[1].text: row[5].text for row in save.tables(results)[0].rows}
    assert shares["beside training"].startswith("at most 0.")
    assert not shares["in parts"].startswith("at most")


def test_without_checkpoints_nothing_is_said(make_result: Make) -> None:
    results, every = found(make_result, iter([replace(next(records()), metric="step_time")]))
    assert every == save.findings(results) == []
    assert not any(table.rows for table in save.tables(results))
