"""What a machine with one GPU gets, from the results of three H200s."""

import pytest
from matplotlib import pyplot as plt
from scalecard.analysis import platforms, provenance
from scalecard.analysis.strategy_choice import LATE, strategy_runs
from scalecard.figures import points
from scalecard.records.files import load
from scalecard.records.record import Result
from scalecard.report import render, sections
from scalecard.report.sections import async_timing, copy_cost, ddp, dp_scratch, strategies
from support.projects import MEASURED, ROOT

FIRST, SECOND = (MEASURED / f"h200x1-torch211{which}" for which in ("", "-second"))


def panels(section: object, result: Result) -> list[str]:
    """The titles of the panels that show something."""
    figure = section.plot([result])  # type: ignore[attr-defined]
    titles = list(dict.fromkeys(str(row["panel"]) for row in points.rows(figure)))
    assert len(titles) == len([axes for axes in figure.axes if axes.get_visible()]), "none is empty"
    plt.close(figure)
    return titles


def test_ddp_on_one_rank_is_compared_with_a_plain_step() -> None:
    result = load(FIRST / "ddp.json")
    assert panels(ddp, result) == [
        "on one rank",
        "LeNet: accuracy after each epoch",
        "ResNet-18: accuracy after each epoch",
    ]
    resnet, lenet = (finding.text for finding in ddp.findings(result))
    assert resnet.startswith(
        "On one rank, where there is nothing to exchange, DDP's step of ResNet-18 takes 6 % (5 % to 7 %)"
    )
    assert "DDP's step of LeNet takes 28 %" in lenet


def test_from_scratch_on_one_device_shows_that_it_learns() -> None:
    result = load(FIRST / "dp_scratch.json")
    assert panels(dp_scratch, result) == ["accuracy after each epoch"]
    assert dp_scratch.findings(result)[0].text.endswith("on one device, and its last one ends at 96 %.")


def test_copies_that_are_too_small_for_the_link_say_nothing_of_it() -> None:
    """There was time for 4 and 16 KiB alone."""
    result = load(FIRST / "copy_cost.json")
    (only,) = copy_cost.findings(result)
    assert only.text.startswith("Overlapping the copies with computing takes 94 %")


def test_one_device_shows_its_rates_over_the_size_of_the_work() -> None:
    assert panels(async_timing, load(SECOND / "async_timing.json")) == ["products, one device"]
    result = load(SECOND / "strategies.json")
    figure = strategies.plot([result])
    rates = {
        row["x"]: row["value"]
        for row in points.rows(figure)
        if row["panel"] == "resnet50, plain SGD in float32, one device"
    }
    plt.close(figure)
    assert list(rates) == [1, 2, 4, 8, 16, 32, 64]
    assert round(float(str(rates[64]))) == 832
    (finding,) = strategies.findings(result)
    assert "one device trains 832 (832 to 833) samples/s with a batch of 64" in finding.text
    assert finding.text.endswith("a single sample per step leaves 8 % of that, and at most 1477 samples fit.")


def test_what_had_no_time_is_not_said_to_be_unusable_and_one_device_has_nothing_to_choose() -> None:
    result = load(SECOND / "strategies.json")
    statuses = {run.status for run in strategy_runs(result, "gpt") if run.devices == 1}
    assert statuses == {LATE}
    measured = [result, load(SECOND / "async_timing.json")]
    left_out: list[platforms.LeftOut] = []
    assert render.every_answer(measured, render.NO_SETTINGS, left_out) == []
    assert left_out == []


@pytest.mark.skipif(not (ROOT / "results").exists(), reason="a copy of the project has no results")
def test_the_whole_card_of_one_gpu_is_told_and_names_once_what_had_no_time() -> None:
    results = [load(path) for path in sorted((ROOT / "results/h200x1-torch211-card").glob("*.json"))]
    told = {
        result.experiment: [found.text for found in sections.load(result.experiment).findings(result)]
        for result in results
    }
    assert all(told.values()), "also why something could not be measured"
    left_out = provenance.left_out(results)
    assert left_out.startswith(
        "Left out for lack of time: 2 cases of async_timing (all of it takes about 1 min), 4 cases of"
    )
