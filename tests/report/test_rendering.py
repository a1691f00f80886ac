"""What the report says about what was skipped, emulated or synthetic, and about two machines under one label."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scalecard.records.record import Result
from scalecard.report import figures, sections, style
from scalecard.report.render import render
from two_platforms import CHECKS, SKIPPED, SYNTHETIC, two_platforms, write_report

EMULATED = 'class="banner"'


@pytest.fixture
def results(make_result: Callable[..., Result]) -> list[Result]:
    return two_platforms(make_result)


def with_real_images(result: Result) -> Result:
    return replace(result, records=[replace(r, case={**r.case, "data": "fashion-mnist"}) for r in result.records])


def on_a_gpu(result: Result) -> Result:
    return replace(result, environment={**result.environment, "emulated": False})


def test_the_report_says_what_was_skipped_emulated_and_proven(results: list[Result], tmp_path: Path) -> None:
    text = write_report(results, tmp_path).read_text()
    for said in (SKIPPED, EMULATED, SYNTHETIC, CHECKS[0].name):
        assert said in text
    assert "1.67x" in text, "the speed-up of the second device, from its samples"
    assert EMULATED not in render([on_a_gpu(result) for result in results], tmp_path / "figures")


def test_accuracies_on_synthetic_images_never_beside_published_ones(results: list[Result], tmp_path: Path) -> None:
    cell = "test accuracy</td>"
    assert cell not in write_report(results, tmp_path).read_text()
    assert cell in render([with_real_images(result) for result in results], tmp_path / "figures")


def test_two_machines_under_one_label_are_refused(results: list[Result], tmp_path: Path) -> None:
    environment = results[1].environment
    newer = {"fingerprint": "0" * 12, "machine": {**environment["machine"], "driver": "580.1"}}
    other = replace(results[1], environment={**environment, **newer})
    with pytest.raises(
        ValueError, match=r"dp_scratch\.json and allreduce\.json .*\(driver None and 580\.1; hosts, hashed: "
    ):
        render([results[0], other], tmp_path)


def test_an_svg_is_the_same_twice_and_has_no_ink_of_its_own(results: list[Result], tmp_path: Path) -> None:
    for name in ("a", "b"):
        figures.save(sections.load("allreduce").plot([results[1]]), tmp_path / f"{name}.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert style.INK not in text
    assert "currentColor" in text
