"""`make pictures`: the README's picture, taken of results/report.html, which must be of real results.

It needs Chromium. Options     make pictures ARGS="another/report.html"
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
WIDTH, HEIGHT = 1280, 860  # pixels: the first screen of a laptop
PLATFORM = re.compile(r'<meta name="platform" content="([^"]+)">')


def main() -> int:
    """Write docs/report.png; 2 if there is nothing to take a picture of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", nargs="?", type=Path, default=Path("results/report.html"))
    report = parser.parse_args().report
    problem = _problem(report)
    if problem:
        print(f"{report}: {problem}", file=sys.stderr)
        return 2
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.screenshot(path=FOLDER / "report.png")
        browser.close()
    return 0


def _problem(report: Path) -> str:
    """Why no picture is taken of it; '' if one is."""
    if not report.exists():
        return "there is no such report; `make` writes one"
    found = PLATFORM.search(report.read_text("utf-8"))
    if not found:
        return "no report of ScaleCard, which names its platform"
    return f"made-up results ({found[1]}) are for tests, not for pictures" if "fixture" in found[1] else ""


if __name__ == "__main__":
    sys.exit(main())
