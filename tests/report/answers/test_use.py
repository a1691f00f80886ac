"""What the page is told to use: findings of real devices, grey tables of emulated ones, and the figure."""

from collections.abc import Callable
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
from scalecard.analysis.platforms import PlatformResults
from scalecard.figures import layout, style
from scalecard.records.record import Result
from scalecard.report import pages
from scalecard.report.answers import use
from scalecard.report.table import Cell, Table
from support.eight_gpus import ddp, measured, strategies, too_large

Make = Callable[..., Result]
OPTIONS = {"default": (1, 0.0200), "bucket 50 MiB": (1, 0.0190)}


@pytest.fixture
def real(make_result: Make) -> PlatformResults:
    return measured(make_result, strategies=strategies(), ddp=ddp(OPTIONS))


@pytest.fixture
def emulated(real: PlatformResults) -> PlatformResults:
    return PlatformResults(
        {
            name: replace(result, environment={**result.environment, "emulated": True})
            for name, result in real.results.items()
        }
    )


def column(table: Table, name: str) -> list[str]:
    place = list(table.head).index(name)
    return [row[place].text for row in table.rows]


def test_of_real_devices_each_workload_has_at_most_three_sentences(real: PlatformResults) -> None:
    found = use.findings(real)
    assert sum(finding.text.startswith("gpt, plain SGD in float32:") for finding in found) == 3
    assert min(found, key=lambda finding: finding.topic).headline == "gpt, plain SGD in float32: DDP on 8 devices"
    assert any(finding.text.startswith("resnet18 by DDP on 8 devices: bucket 50 MiB") for finding in found)
    assert not any(table.trial for table in use.tables(real))


def test_of_one_gpu_nothing_is_said_of_scaling(make_result: Make) -> None:
    """Though what it does with smaller batches was timed."""
    alone = [record for record in strategies() if record.case["devices"] == 1]
    (finding,) = use.findings(measured(make_result, strategies=alone))
    assert finding.headline == "not compared"


def test_of_emulated_devices_nothing_is_advised_and_sentences_are_grey(
    real: PlatformResults, emulated: PlatformResults
) -> None:
    (finding,) = use.findings(emulated)
    assert finding.text.startswith("No advice is given")
    tables = use.tables(emulated)
    assert all(table.trial for table in tables)
    assert [row[0].text for row in tables[0].rows] == [finding.text for finding in use.findings(real)]


def test_the_tables_answer_the_textbooks(real: PlatformResults) -> None:
    summary, everything, by_batch, defaults = use.tables(real)
    assert column(summary, "One device") == ["fits, but slow"]
    assert column(summary, "Use") == ["DDP on 8 devices"]
    assert column(summary, "Runner-up") == ["FSDP gradients on 8 devices"]
    assert column(summary, "Collapses at") == ["8 (DDP on 8 devices)"]
    assert column(summary, "Avoid") == ["model parallel, DataParallel"]
    places = zip(column(everything, "Strategy"), column(everything, "Devices"), strict=True)
    decided = dict(zip(places, column(everything, "Decision"), strict=True))
    assert decided["DataParallel", "8"] == "avoid: less than half as fast as DDP"
    assert "recommended" in column(everything, "Decision")
    assert column(everything, "Memory")[0] == "20 GiB"
    assert column(everything, "Energy")[0] == "0.0312 J/sample"
    assert "collapsed" in column(by_batch, "Verdict")
    assert dict(zip(column(defaults, "Setting"), column(defaults, "Verdict"), strict=True)) == {
        "bucket 50 MiB": "faster",
        "reshard_after_forward=False": "faster",
    }


def test_what_does_not_fit_stays_in_the_table_with_its_reason(make_result: Make) -> None:
    summary, everything = use.tables(measured(make_result, strategies=[too_large("single device", 1)]))
    assert column(summary, "One device") == ["does not fit"]
    assert column(summary, "Fewest devices") == ["none"]
    assert column(everything, "Fits")[0].startswith("does not fit: CUDA out of memory")


def test_without_strategies_it_says_so(make_result: Make) -> None:
    (finding,) = use.findings(measured(make_result, allreduce=[]))
    assert finding.text == "Nothing to choose from: strategies was not measured."
    assert use.tables(measured(make_result, allreduce=[])) == []
    plt.close(use.plot(measured(make_result, allreduce=[])))


def test_the_figure_emphasises_the_fastest_and_names_the_next(real: PlatformResults, emulated: PlatformResults) -> None:
    for measured_, colour in ((real, style.colour("DDP")), (emulated, style.INK)):
        figure = use.plot(measured_)
        layout.finish(figure)
        (axes,) = figure.axes
        thick = {line.get_color() for line in axes.lines if line.get_linewidth() > 2}
        assert thick == {colour}
        names = {text.get_text() for text in axes.texts}
        assert names == {
            "ideal",
            "DDP, weak",
            "DDP",
            "FSDP gradients",
            "FSDP parameters",
        }
        assert ("trial" in axes.get_title(loc="left")) == (measured_ is emulated)
        plt.close(figure)


def test_the_page_greys_a_trial_and_sorts_text_as_text() -> None:
    """A cell that is a number has the number to sort by; a name has none, and escapes what it contains."""
    computed = pages.environment().get_template("macros.html.j2").module.computed  # type: ignore[attr-defined]
    rows = [[Cell("<DDP>"), Cell("1.5x", 1.5, ["too <few> samples"])]]
    trial, real = (computed(Table("Label", ["Name", "Gain"], rows, "A note.", trial)) for trial in (True, False))
    assert 'class="trial"' in trial
    assert 'class="trial"' not in real
    assert '<td>&lt;DDP&gt;<td data-sort="1.5">1.5x <small class="remark">too &lt;few&gt; samples</small>' in real
