"""What is said of forecasts, and of how they did where they were not fitted."""

import re
from dataclasses import replace

import pytest
from scalecard.analysis.platforms import PlatformResults
from scalecard.report.answers import forecast as answer
from support.blocks import CONFIG
from support.forecast_results import changed, found, results


def test_the_sentences_and_tables_of_eight_gpus() -> None:
    measured = PlatformResults(results("communication"), {"forecast": CONFIG["forecast"]})
    first, *others = answer.findings(measured)
    assert "on 8 devices, none of which they had seen" in first.text
    assert all(re.search("16 devices (would|might) be", other.text) for other in others)
    for other in others:
        trusted = re.search(r"Trust it up to (\d+) devices", other.text)
        assert ("16 devices would be" in other.text) == (trusted is not None and int(trusted[1]) >= 16)
    assert {"strong", "weak"} == {row[2].text for row in answer.tables(measured)[0].rows}
    assert [len(row) for table in answer.tables(measured) for row in table.rows] == [
        len(table.head) for table in answer.tables(measured) for _ in table.rows
    ]


def test_what_is_not_forecast_is_named_with_the_reason() -> None:
    ddp = next(iter(results()["strategies"].select("step_time", strategy="DDP", devices=8)))
    others = [
        replace(ddp, case={**ddp.case, "strategy": name}) for name in ("tensor parallel", "data x pipeline", "HSDP")
    ]
    strategies = replace(results()["strategies"], records=[*results()["strategies"].records, *others])
    *_, last = answer.findings(PlatformResults({**results(), "strategies": strategies}))
    assert last.text == (
        "No forecast for tensor parallel (divided layers with their all-reduces are not timed alone);"
        " data x pipeline (replicas with what they exchange are not timed alone)."
    )
    assert not any("No forecast for" in finding.text for finding in answer.findings(PlatformResults(results())))


def test_the_strategy_that_is_forecast_worst_is_named_if_it_leaves_its_band() -> None:
    """Three times as slow as measured: a forecast that was right is 67 % short."""
    odd = changed(results(), "strategies", {"step_time": 3.0}, devices=8, strategy="our gpipe", scaling="weak")
    sentence = answer.error(list(found(odd).values()))
    off = re.search(r" The farthest off is gpt, our gpipe, weak scaling, by ([\d.]+) %\.$", sentence)
    assert off, sentence
    assert float(off[1]) == pytest.approx(66.7, abs=3)
    inside = [one for one in found(results()).values() if one.held_out and one.held_out.inside]
    assert "farthest" not in answer.error(inside)
