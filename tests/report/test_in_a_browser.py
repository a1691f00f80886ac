"""The report in a real browser: offline, on a narrow screen, in light and dark, and its tables sorted."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from scalecard.records.files import load
from scalecard.records.record import Result
from support.browsing import go_to
from support.every_experiment import every_result
from support.two_platforms import two_platforms, write_report

pytestmark = pytest.mark.browser


@pytest.fixture
def html(make_result: Callable[..., Result], tmp_path: Path) -> Path:
    return write_report(two_platforms(make_result), tmp_path)


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
        go_to(page, html, name)
        box = page.locator(f"#{name} .plot svg").first.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert page.locator(f"#{name} .plot[role=img]").get_attribute("aria-label")


@pytest.mark.parametrize("width", [390, 1280])
def test_no_horizontal_scroll(page: Page, html: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(html.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_contents_lead_to_every_section_and_mark_the_one_that_is_read(page: Page, html: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 844})
    page.goto(html.as_uri())
    links = page.locator("nav a")
    sections = {f"#{name}" for name in page.locator("section, header").evaluate_all("all => all.map(each => each.id)")}
    assert set(links.evaluate_all("all => all.map(each => each.hash)")) == sections
    page.locator("#contents a[href='#allreduce']:not(.group > a)").click()
    page.wait_for_function("document.querySelector('#contents a[aria-current]')?.hash === '#allreduce'")
    assert page.locator("#contents a[aria-current]").count() == 1
    assert page.locator(".tabs a[aria-current=page]").inner_text() == "Health"
    assert page.locator("#allreduce").is_visible()
    assert not page.locator("#summary").is_visible()
    page.go_back()
    page.wait_for_function("!document.querySelector('#summary').closest('[hidden]')")
    page.goto(f"{html.as_uri()}#%")
    page.reload()
    assert page.locator("#summary").is_visible(), "a link that is none of ours does no harm"


def test_without_scripts_all_pages_stand_one_after_another(browser: Browser, html: Path) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(html.as_uri())
    assert all(page.locator(f"#{name}").is_visible() for name in ("summary", "allreduce", "dp_scratch", "overview"))
    page.close()


def test_a_phone_begins_with_the_summary_and_has_the_contents_at_hand(page: Page, html: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(html.as_uri())
    heading = page.locator("h1").bounding_box()
    assert heading is not None
    assert heading["y"] < 200
    page.locator("a.to-contents").click()
    page.wait_for_function("document.querySelector('nav').getBoundingClientRect().top < window.innerHeight")


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


def test_printed_are_eight_pages_at_most_and_everything_if_asked(page: Page, tmp_path: Path) -> None:
    """A4 with 12 mm around is 703 px wide, and nothing may be cut off."""
    html = write_report([*every_result("box"), *every_result("older")], tmp_path)
    page.set_viewport_size({"width": 703, "height": 1000})
    page.goto(html.as_uri())
    assert 2 <= pages(page) <= 8
    page.emulate_media(media="print")
    for what in ("#summary", "#ddp .plot", "#why .plot", "#use .plot"):
        assert page.locator(what).first.is_visible(), f"{what}, on whatever page the screen is"
    page.emulate_media(media="screen")
    page.evaluate("window.print = () => { window.asked = document.querySelectorAll('details:not([open])').length; }")
    page.locator("button.print").click()
    assert page.evaluate("window.asked") == 0
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    assert pages(page) > 8
    assert pages(page) <= 8, "once it is printed, the page is as it was"


def pages(page: Page) -> int:
    return len(re.findall(rb"/Type\s*/Page[^s]", page.pdf(prefer_css_page_size=True)))


def test_raw_data_is_saved_as_it_was_measured(page: Page, html: Path, tmp_path: Path) -> None:
    go_to(page, html, "dp_scratch")
    for _ in range(2):
        with page.expect_download() as waiting:
            page.locator("#dp_scratch .raw a").click()
        assert waiting.value.suggested_filename.endswith("-dp_scratch.json")
        waiting.value.save_as(tmp_path / "raw.json")
        assert load(tmp_path / "raw.json").experiment == "dp_scratch"


def test_a_browser_that_cannot_unpack_saves_the_packed_file(page: Page, html: Path, tmp_path: Path) -> None:
    page.add_init_script("delete window.DecompressionStream")
    go_to(page, html, "dp_scratch")
    with page.expect_download() as waiting:
        page.locator("#dp_scratch .raw a").click()
    assert waiting.value.suggested_filename.endswith("-dp_scratch.json.gz")
    waiting.value.save_as(tmp_path / "raw.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "raw.json.gz").read_bytes()))["experiment"] == "dp_scratch"


def test_a_click_on_a_head_sorts(page: Page, html: Path) -> None:
    go_to(page, html, "allreduce")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    table = page.locator("#allreduce table.sortable").first
    head = table.locator("thead button", has_text="bytes")
    head.click()
    first = table.locator("tbody tr").first.inner_text()
    head.click()
    assert table.locator("tbody tr").first.inner_text() != first
    assert "4\u00a0KiB" in first
