"""The report without its folder, as when it is mailed: nothing leads to a file that is not there."""

import re
import shutil
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page
from scalecard.exports import write_exports
from scalecard.records.files import save
from scalecard.records.record import Result
from scalecard.report import render
from support.browsing import go_to
from support.two_platforms import draw, two_platforms

HELD = ("data", "http", "https", "blob")


class Addresses(HTMLParser):
    """Every address that leads to a file, of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value and not value.startswith("#") and urlsplit(value).scheme not in HELD:
                self.found.append(value)


@pytest.fixture
def report(make_result: Callable[..., Result], tmp_path: Path) -> Path:
    """As the workflow leaves it, with exports, files of figures, a trace and the archive."""
    folder, results = tmp_path / "results", two_platforms(make_result)
    draw(results, folder / "figures")
    (folder / "figures" / "allreduce.png").write_bytes(b"png")
    paths = [folder / result.platform / f"{result.experiment}.json" for result in results]
    for path, result in zip(paths, results, strict=True):
        save(result, path)
    trace = paths[0].parent / "traces" / "dp_scratch" / "by+hand.json.gz"
    trace.parent.mkdir(parents=True)
    trace.write_bytes(b"trace")
    here = [path for path in paths if path.parent == paths[0].parent]
    exported = sorted(path for path in write_exports.export(here)[0].iterdir() if path.is_file())
    archive = folder / "report.zip"
    render.write(paths, folder / "figures", folder / "report.html", exports=exported, archive=archive)
    return folder / "report.html"


@pytest.fixture
def alone(report: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "mail"
    folder.mkdir()
    return Path(shutil.copy(report, folder))


def test_no_address_leads_to_a_file(alone: Path) -> None:
    assert Addresses(alone.read_text()).found == []


def test_the_archive_has_the_page_and_what_it_names_and_is_the_same_again(report: Path) -> None:
    archive = report.with_name("report.zip")
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
        assert opened.read("scalecard/report.html") == report.read_bytes()
        assert opened.read("scalecard/figures/allreduce.png") == b"png"
        assert opened.testzip() is None
    page = report.read_text()
    for name in names[1:]:
        folder, _, file = name.removeprefix("scalecard/").rpartition("/")
        assert re.search(rf"<code>results/{re.escape(folder)}/</code>.*\s*<p>.*\b{re.escape(file)}\b", page), name
    assert any("/traces/" in name for name in names)
    before = archive.read_bytes()
    beside = render.downloads.by_folder([report.parent / name.removeprefix("scalecard/") for name in names[1:]], report)
    render.downloads.write_archive(archive, report, beside)
    assert archive.read_bytes() == before


@pytest.mark.browser
def test_texts_and_tables_are_saved_from_the_page_alone(page: Page, alone: Path) -> None:
    page.goto(f"{alone.as_uri()}#downloads")
    assert page.locator("a[href$='.zip']").count() == 0
    page.locator("#downloads > details > summary").click()
    exports = alone.parents[1] / "results" / "exports" / "box"
    for name in ("summary.md", "citation.bib"):
        with page.expect_download() as waiting:
            page.locator("#downloads a", has_text=name).click()
        assert waiting.value.suggested_filename == name
        assert waiting.value.path().read_bytes() == (exports / name).read_bytes()


@pytest.mark.browser
def test_the_archive_is_linked_where_the_report_was_written(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    assert page.locator("#downloads a", has_text="report.zip").get_attribute("href") == "report.zip"


@pytest.mark.browser
def test_a_figure_has_an_address_that_a_click_copies(browser: Browser, alone: Path) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    go_to(page, alone, "allreduce")
    page.locator("#allreduce button.copy").click()
    page.wait_for_function("document.querySelector('#allreduce .copied').textContent === 'Copied.'")
    address = page.evaluate("navigator.clipboard.readText()")
    assert address == f"{alone.as_uri()}#figure-allreduce"
    page.goto("about:blank")
    page.goto(address)
    assert page.locator("#figure-allreduce svg").first.is_visible()
    context.close()
