"""The report in a real browser, and what it says about what was skipped, emulated or synthetic."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright
from scalecard import report, sections
from scalecard.schema import Check, InvalidResult, Record, Result
from scalecard.sections import style

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SAMPLES = [0.10, 0.11, 0.12, 0.11, 0.10, 0.13, 0.11]
CHECKS = [Check(name="parameters after 3 steps", difference=1e-17, tolerance=1e-10)]


def timed(metric: str = "time", scale: float = 1.0, **case: str | float) -> Record:
    samples = [scale * s for s in SAMPLES]
    telemetry = [{"count": len(samples), "rounds_id": "r", "stopped": "7 rounds"}]
    return Record(case=case, metric=metric, unit="s", samples=samples, checks=CHECKS, telemetry=telemetry)


def accuracy(**case: str | float) -> Record:
    return Record(case=case, metric="accuracy", unit="fraction", samples=[0.1, 0.5, 0.8])


@pytest.fixture
def results(make_result: Callable[..., Result]) -> list[Result]:
    """Two experiments on two platforms, one without its second device."""
    scratch = [
        timed("epoch_time", devices=1, batch_size=64, data="synthetic"),
        accuracy(devices=1, batch_size=64, data="synthetic"),
        timed("epoch_time", 0.6, devices=2, batch_size=64, data="synthetic"),
        accuracy(devices=2, batch_size=64, data="synthetic"),
    ]
    ring = [timed(algorithm=a, devices=2, bytes=b) for a in ("naive", "ring") for b in (4096, 65536)]
    skipped = [Record(case={"devices": 2}, metric="time", unit="s", status="skipped", note="needs 2 devices")]
    spec = {"train_images": 100, "batch_size": 64, "bytes": [4096, 65536]}
    return [
        make_result(scratch, experiment="dp_scratch", spec=spec, warnings=["the data set is synthetic"]),
        make_result(ring, experiment="allreduce", spec=spec),
        make_result(skipped, experiment="allreduce", platform="older", spec=spec),
    ]


@pytest.fixture
def html(results: list[Result], tmp_path: Path) -> Path:
    for name in ("dp_scratch", "allreduce"):
        figure = sections.load(name).plot([r for r in results if r.experiment == name])
        style.save(figure, tmp_path / "figures" / f"{name}.svg")
    path = tmp_path / "report.html"
    path.write_text(report.render(results, tmp_path / "figures"))
    return path


def test_the_report_says_what_was_skipped_emulated_and_proven(html: Path) -> None:
    text = html.read_text()
    assert "needs 2 devices" in text
    assert "devices are emulated" in text
    assert "the data set is synthetic" in text
    assert "parameters after 3 steps" in text
    assert "1.67x" in text, "the speed-up of the second device, from its samples"


def test_accuracies_on_synthetic_images_never_stand_beside_published_ones(
    html: Path, results: list[Result], tmp_path: Path
) -> None:
    assert "test accuracy</td>" not in html.read_text()
    real = [
        dataclasses.replace(
            r, records=[dataclasses.replace(x, case={**x.case, "data": "fashion-mnist"}) for x in r.records]
        )
        for r in results
    ]
    assert "test accuracy</td>" in report.render(real, tmp_path / "figures")


def test_two_machines_under_one_label_are_refused(results: list[Result], tmp_path: Path) -> None:
    environment = results[1].environment
    newer = {"fingerprint": "0" * 12, "machine": {**environment["machine"], "driver": "580.1"}}
    other = dataclasses.replace(results[1], environment={**environment, **newer})
    with pytest.raises(
        ValueError, match=r"dp_scratch\.json and allreduce\.json .*\(driver None and 580\.1; hosts, hashed: "
    ):
        report.render([results[0], other], tmp_path)


def test_an_svg_is_the_same_twice_and_has_no_ink_of_its_own(results: list[Result], tmp_path: Path) -> None:
    for name in ("a", "b"):
        style.save(sections.load("allreduce").plot([results[1]]), tmp_path / f"{name}.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert style.INK not in text
    assert "currentColor" in text


def test_invalid_result_is_a_value_error() -> None:
    assert issubclass(InvalidResult, ValueError), "so that the command line shows one line"


@pytest.fixture
def page() -> Iterator[Page]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


def test_it_opens_offline_without_errors(page: Page, html: Path) -> None:
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("request", lambda r: requests.append(r.url))
    page.goto(html.as_uri())
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    for name in ("dp_scratch", "allreduce"):
        box = page.locator(f"#{name} .plot svg").bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert page.locator(f"#{name} [role=img]").get_attribute("aria-label")


@pytest.mark.parametrize("width", [390, 1280])
def test_no_horizontal_scroll(page: Page, html: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(html.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_text_of_figures_follows_the_page(page: Page, html: Path, scheme: str, dark: bool) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(html.as_uri())
    background, ink = (
        page.evaluate(f"getComputedStyle(document.querySelector('{where}')).{what}")
        for where, what in (("body", "backgroundColor"), ("#allreduce .plot svg", "color"))
    )
    assert (brightness(ink) - brightness(background) > 120) == dark
    assert abs(brightness(ink) - brightness(background)) > 120


def brightness(colour: str) -> float:
    return sum(float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) / 3


def test_a_click_on_a_head_sorts(page: Page, html: Path) -> None:
    page.goto(html.as_uri())
    table = page.locator("#allreduce table.sortable").first
    head = table.locator("thead button", has_text="bytes")
    head.click()
    first = table.locator("tbody tr").first.inner_text()
    head.click()
    assert table.locator("tbody tr").first.inner_text() != first
    assert "4096" in first
