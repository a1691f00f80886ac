"""One quantity has one value and one baseline, wherever it is said: page, figures' data, exports, terminal."""

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from fixtures import platforms
from scalecard.analysis import provenance
from scalecard.analysis.platforms import current
from scalecard.exports import scaling, summary_text
from scalecard.figures import points
from scalecard.jobs import plan
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.report import answers, render, sections
from support.blocks import CONFIG
from support.builders import timed
from support.said_values import MOST, Claim, Quantity, claims, worked_out

Make = Callable[..., Result]
Truth = dict[Quantity, float]
SHOWN = ("ddp", "dp_concise", "dp_scratch", "strategies")
SWINGS = (1.0, 1.3, 0.9, 1.1, 1.02, 1.25, 0.97)
SETTINGS = {"forecast": CONFIG["forecast"]}
# Where quantities of training are said; a place that says none has lost them, or says them in other words.
PLACES = {
    "page, summary",
    "page, use",
    "page, why",
    "page, strategies",
    "page, ddp",
    "page, dp_concise",
    "page, dp_scratch",
    "figure of strategies",
    "figure of use",
    "figure of ddp",
    "figure of dp_scratch",
    "scaling.csv",
    "scaling.md",
    "scaling.tex",
    "summary.md",
    "terminal",
}


def drifting(result: Result) -> Result:
    """The same steps in shared rounds, each disturbed otherwise: the median of ratios is then no ratio of medians."""
    return replace(result, records=[_disturbed(record) for record in result.records])


def _disturbed(record: Record) -> Record:
    if record.metric not in ("step_time", "epoch_time"):
        return record
    shift = sum(map(ord, str(record.case))) % len(SWINGS)
    samples = [[each * SWINGS[(i + shift) % len(SWINGS)] for i, each in enumerate(own)] for own in record.samples]
    rounds = [replace(entry, rounds_id=f"{len(samples[0])} samples") for entry in record.telemetry]
    return replace(record, samples=samples, telemetry=rounds)


@cache
def measured(*, disturbed: bool) -> tuple[Result, ...]:
    own = [result for result in platforms.results("fixture-2xrtx4090") if result.experiment in SHOWN]
    return tuple(map(drifting, own) if disturbed else own)


def csv_of(figure: plt.Figure) -> str:
    table = StringIO()
    rows = points.rows(figure)
    writer = csv.DictWriter(table, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    plt.close(figure)
    return table.getvalue()


def outputs(results: Sequence[Result], folder: Path) -> dict[str, str]:
    """Everything that is rendered of these results, by where it is read; the page by its parts."""
    for name in (*sections.names(), *answers.names()):
        (folder / f"{name}.html").write_text("<svg></svg>")
    page = render.render(results, folder, settings=SETTINGS)
    parts = re.split(r'<(?=(?:section|header) id=")', page.split("<main", 1)[1])
    found = dict[str, str]()
    for part in parts[1:]:
        name = re.match(r'\w+ id="(\w+)"', part)[1]  # type: ignore[index]
        found[f"page, {name}"] = f"<{part}"
    for name in SHOWN:
        own = [result for result in results if result.experiment == name]
        found[f"figure of {name}"] = csv_of(sections.load(name).plot(own))
    found["figure of use"] = csv_of(answers.load("use").plot(current(results)))
    exported = scaling.of_results(results)
    found |= {name: exported[name].decode() for name in ("scaling.csv", "scaling.md", "scaling.tex")}
    found["summary.md"] = summary_text.summary(results)
    found["terminal"] = plan.success(results, None, 0.0)
    return found


@pytest.fixture(scope="module", params=[False, True], ids=["as made", "drifting"])
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], Truth]:
    results = measured(disturbed=request.param)
    return outputs(results, tmp_path_factory.mktemp("figures")), worked_out(results)


def wrong(text: str, truth: Truth) -> list[Claim]:
    """What is said of a quantity that is not its value; every one must be known."""
    most = max(devices for *_, devices, _, _ in truth)
    found = list[Claim]()
    for claim in claims(text):
        *place, devices, scaling, what = claim.quantity
        value = truth[(*place, most if devices == MOST else devices, scaling, what)]  # type: ignore[index]
        found += [] if claim.agrees(value) else [claim]
    return found


def test_every_place_says_the_same_of_a_quantity(said: tuple[dict[str, str], Truth]) -> None:
    texts, truth = said
    assert {place: found for place, text in texts.items() if (found := wrong(text, truth))} == {}
    assert sum(len(claims(text)) for text in texts.values()) > 500


def test_a_changed_number_is_found_wherever_it_stands(said: tuple[dict[str, str], Truth]) -> None:
    texts, truth = said

    def changed(match: re.Match[str]) -> str:
        decimals = len(match[0].partition(".")[2])
        return f"{1.09 * float(match[0]):.{decimals}f}"

    unnoticed = [place for place in PLACES if not wrong(re.sub(r"\d+\.\d+", changed, texts[place]), truth)]
    assert unnoticed == []


def test_a_step_that_several_experiments_timed_is_said_to_have_been_timed_by_each(make_result: Make) -> None:
    """30, 31 and 40 ms; a fused step, and one at another batch, are no plain ones."""
    step: Case = {"workload": "gpt", "devices": 1, "batch_size": 8, "unit": "samples", "units": 8}
    one: Case = {"strategy": "single device"}
    spec = {
        "strategies": [(0.030, step | one | {"scaling": "strong", "precision": "bf16"})],
        "input": [(0.031, step | {"data": "resident", "part": "workers"})],
        "tuning": [
            (0.040, step | one | {"bf16": 1}),
            (0.020, step | one | {"bf16": 1, "fused": 2}),
            (0.090, step | one | {"bf16": 1, "batch_size": 16}),
        ],
    }
    results = [
        make_result([timed([seconds] * 7, metric="step_time", **case) for seconds, case in cases], experiment=name)
        for name, cases in spec.items()
    ]
    said = "A step of gpt on one device took 30 ms in strategies, 31 ms in input, 40 ms in tuning; ratios are of one"
    assert [text for text in provenance.reasons_to_trust(results) if text.startswith(said)]
    assert not [text for text in provenance.reasons_to_trust(results[:1]) if text.startswith("A step of")]
