"""`make pictures` takes none of made-up results, and none of what is no report."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.projects import ROOT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no such report; `make` writes one"),
        ("<p>no report</p>", "no report of ScaleCard, which names its platform"),
        (
            '<meta name="platform" content="fixture-8xh100">',
            "made-up results (fixture-8xh100) are for tests, not for pictures",
        ),
    ],
)
def test_what_is_no_report_of_a_real_machine_is_refused(text: str | None, said: str, tmp_path: Path) -> None:
    report, before = tmp_path / "report.html", (ROOT / "docs" / "report.png").read_bytes()
    if text is not None:
        report.write_text(text)
    command = [sys.executable, str(ROOT / "docs" / "pictures.py"), str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"{report}: {said}\n")
    assert (ROOT / "docs" / "report.png").read_bytes() == before
