"""A report in a browser, at one of its sections."""

from pathlib import Path

from playwright.sync_api import Page


def go_to(page: Page, report: Path, section: str) -> None:
    """Turn to the section's page, as a link to it does, and open what it folds."""
    page.goto(f"{report.as_uri()}#{section}")
    page.evaluate(f"document.querySelector('#{section} > .more').open = true")
