"""The page's calculator in a real browser, beside the forecast that it repeats."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from scalecard.analysis.forecast.fitted_terms import middle
from scalecard.analysis.forecast.forecast import forecasts
from scalecard.analysis.forecast.model import Settings
from scalecard.analysis.platforms import PlatformResults
from scalecard.report import pages
from scalecard.report.answers import forecast as answer
from support.simulated_clusters import drawn, simulated


@pytest.fixture(scope="module")
def measured() -> PlatformResults:
    return PlatformResults(simulated(8, cause="communication", seed=101))


@pytest.fixture(scope="module")
def html(measured: PlatformResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    block = pages.render("calculator.html.j2", calculator=answer.calculator(measured))
    script = (pages.TEMPLATES / "report.js").read_text()
    path.write_text(f"<!doctype html><meta charset='utf-8'><body>{block}<script>{script}</script></body>")
    return path


@pytest.fixture(scope="module")
def page(browser: Browser, html: Path) -> Iterator[Page]:
    opened = browser.new_page()
    opened.goto(html.as_uri())
    yield opened
    opened.close()


def shares(page: Page, column: int) -> dict[int, float]:
    """Efficiency by the number of devices, as the table shows it."""
    rows = [row.split("\t") for row in page.locator("#calculator tbody").inner_text().strip().split("\n")]
    return {int(row[0]): float(row[column].rstrip(" %")) / 100 for row in rows if row[column].strip()}


@pytest.mark.browser
def test_pre_filled_it_shows_the_forecast(page: Page, measured: PlatformResults) -> None:
    for column, scaling in ((1, "strong"), (2, "weak")):
        (one,) = (
            f
            for f in forecasts(measured.results, Settings())
            if (f.model.strategy.name, f.model.scaling) == ("DDP", scaling)
        )
        shown = shares(page, column)
        assert len(shown) > 5
        for count, share in shown.items():
            assert share == pytest.approx(middle(one.efficiencies[count]), abs=0.03)


@pytest.mark.browser
def test_less_to_exchange_scales_farther_and_a_better_network_too(page: Page) -> None:
    page.reload()
    before = shares(page, 2)
    page.select_option("[name=network]", label="400 Gbit/s between nodes of 8 devices")
    faster = shares(page, 2)
    page.fill("[name=megabytes]", "0.1")
    less = shares(page, 2)
    assert before[64] <= faster[64] < less[64]
    assert less[64] > 0.9


@pytest.mark.browser
def test_a_batch_is_shared_by_as_many_devices_as_it_has_samples(page: Page) -> None:
    page.reload()
    assert max(shares(page, 1)) == drawn("communication", 101).batch
    page.fill("[name=batch]", "16")
    assert max(shares(page, 1)) == 16
    page.fill("[name=batch]", "")
    assert page.locator("#calculator tbody tr").count() == 0


def test_without_script_there_is_a_note(html: Path) -> None:
    text = html.read_text()
    assert "<form hidden>" in text
    assert "<noscript>" in text


def test_names_cannot_end_the_script(measured: PlatformResults) -> None:
    numbers = answer.calculator(measured)
    numbers["workloads"][0]["name"] = "</script><script>alert(1)</script>"
    assert "<script>alert" not in pages.render("calculator.html.j2", calculator=numbers)


def test_emulated_devices_have_no_calculator(measured: PlatformResults) -> None:
    emulated = {
        name: replace(result, environment={**result.environment, "emulated": True})
        for name, result in measured.results.items()
    }
    assert answer.calculator(PlatformResults(emulated)) == {}
