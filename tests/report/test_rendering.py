"""What the report says about what was skipped, emulated or synthetic, and about two machines under one label."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from scalecard.analysis.platforms import LeftOut
from scalecard.figures import style, svg
from scalecard.records.files import InvalidResult, save
from scalecard.records.record import Record, Result
from scalecard.report import answers, figure_files, sections
from scalecard.report.downloads import Downloads
from scalecard.report.render import render, write
from support.every_experiment import every_result
from support.two_platforms import CHECKS, SKIPPED, SYNTHETIC, draw, timed, two_platforms, write_report

EMULATED = 'class="banner"'


@pytest.fixture
def results(make_result: Callable[..., Result]) -> list[Result]:
    return two_platforms(make_result)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawn")


@pytest.fixture
def figures(results: list[Result], drawn: Path, tmp_path: Path) -> Path:
    """A copy of their figures, which are drawn once."""
    if not any(drawn.iterdir()):
        draw(results, drawn)
    return Path(shutil.copytree(drawn, tmp_path / "figures"))


def with_real_images(result: Result) -> Result:
    return replace(result, records=[replace(r, case={**r.case, "data": "fashion-mnist"}) for r in result.records])


def on_a_gpu(result: Result) -> Result:
    return replace(result, environment={**result.environment, "emulated": False})


def test_the_report_says_what_was_skipped_emulated_and_proven(results: list[Result], figures: Path) -> None:
    text = render(results, figures)
    for said in (SKIPPED, EMULATED, SYNTHETIC, CHECKS[0].name):
        assert said in text
    assert "1.67x" in text, "the speed-up of the second device, from its samples"
    assert EMULATED not in render([on_a_gpu(result) for result in results], figures)


def test_further_packages_of_the_image_are_said_beside_the_locked_software(
    results: list[Result], figures: Path
) -> None:
    added = [replace(result, environment={**result.environment, "packages": "04e40d0604fd"}) for result in results]
    assert "<td>04e40d0604fd</td>" in render(added, figures)
    assert "further packages" not in render(results, figures)


def test_a_trace_is_named_by_the_name_that_it_was_written_under(results: list[Result], figures: Path) -> None:
    folder = f"{results[0].platform}/traces/{results[0].experiment}"
    available = Downloads(files={folder: [f"{quote_plus('my_model our 1f1b/2')}.json.gz"]})
    page = render(results, figures, available=available)
    assert "<li>my_model our 1f1b/2</li>" in page
    assert f"<code>results/{folder}/</code>: 1 file<" in page


def test_accuracies_on_synthetic_images_never_beside_published_ones(results: list[Result], figures: Path) -> None:
    cell = "<td>Test accuracy"
    assert cell not in render(results, figures)
    assert cell in render([with_real_images(result) for result in results], figures)


def test_two_machines_under_one_label_are_refused(results: list[Result], tmp_path: Path) -> None:
    environment = results[1].environment
    newer = {"fingerprint": "0" * 12, "machine": {**environment["machine"], "driver": "580.1"}}
    other = replace(results[1], environment={**environment, **newer})
    with pytest.raises(
        ValueError, match=r"dp_scratch\.json and allreduce\.json .*\(driver None and 580\.1; hosts, hashed: "
    ):
        render([results[0], other], tmp_path)


def test_panels_are_the_same_twice_and_have_no_ink_of_their_own(results: list[Result], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        figure_files.save(sections.load("allreduce").plot([results[1]]), tmp_path / name / "figure.html")
    text = (tmp_path / "a" / "figure.html").read_text()
    assert text == (tmp_path / "b" / "figure.html").read_text()
    assert style.INK not in text
    assert "currentColor" in text


SCRIPT = "<script>alert(1)</script>"


def test_a_planted_script_is_text(make_result: Callable[..., Result], tmp_path: Path) -> None:
    """In every text of a result that the report shows, and in a name of a file that was left out."""
    facts = make_result([]).environment
    record = timed(devices=2, bytes=4096, algorithm=SCRIPT, **{SCRIPT: SCRIPT})
    planted = make_result(
        [record, Record.skipped({"devices": 4}, SCRIPT)],
        experiment="allreduce",
        spec={"bytes": [4096], SCRIPT: SCRIPT},
        warnings=[SCRIPT],
        environment={
            **facts,
            "os": SCRIPT,
            "missing": {SCRIPT: SCRIPT},
            "machine": {**facts["machine"], "cpu": SCRIPT},
        },
    )
    write_report([planted], tmp_path)
    text = render([planted], tmp_path / "figures", left_out=[LeftOut(SCRIPT, SCRIPT)])
    assert SCRIPT not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10


def test_what_was_left_out_is_said_at_the_top_and_once_per_reason(results: list[Result], figures: Path) -> None:
    left_out = [LeftOut(f"backup/{name}.json", "it is a copy.") for name in ("ddp", "hybrid")]
    text = render(results, figures, left_out=left_out)
    assert "<code>backup/ddp.json, backup/hybrid.json</code>: it is a copy." in text
    assert text.index("it is a copy.") < text.index('id="findings"')


def test_a_result_that_lacks_what_its_section_needs_is_left_out_and_named(results: list[Result], figures: Path) -> None:
    """Of this platform it is a failure; without anything of this platform there is no report."""
    lacking = replace(results[1], records=[timed(devices=2, bytes=4096)])
    older = replace(results[1], platform="older")
    for ordered, ours in (([results[0], lacking], True), ([older, lacking], False)):
        left_out = list[LeftOut]()
        assert "box/allreduce.json" in render(ordered, figures, left_out=left_out)
        (named,) = left_out
        assert (named.what, named.ours) == ("box/allreduce.json", ours)
        assert named.reason.startswith("it has no 'algorithm' (")
    with pytest.raises(InvalidResult, match=r"nothing can be said of box: box/allreduce\.json: it has no 'algorithm'"):
        render([lacking, older], figures)


def test_an_answer_that_cannot_be_computed_costs_no_report(
    make_result: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(measured: object) -> None:
        raise TypeError("two layouts are equal")

    every = [result for result in every_result("box") if result.experiment in ("strategies", "allreduce")]
    paths = [tmp_path / "box" / f"{result.experiment}.json" for result in every]
    for result, path in zip(every, paths, strict=True):
        save(result, path)
    monkeypatch.setattr("scalecard.report.answers.why.findings", broken)
    monkeypatch.setattr("scalecard.report.answers.why.plot", broken)
    for name in [*(result.experiment for result in every), *answers.names()]:
        used = paths if name in answers.names() else [path for path in paths if path.stem == name]
        suffixes = (".html", ".svg") if name == "why" else (".html",)
        left_out = figure_files.draw(name, used, [tmp_path / "figures" / f"{name}{suffix}" for suffix in suffixes])
        assert [each.what for each in left_out] == (["figure of why"] if name == "why" else [])
    assert "could not be drawn" in (tmp_path / "figures" / "why.svg").read_text()
    left_out = write(paths, tmp_path / "figures", tmp_path / "report.html")
    assert [(each.what, each.ours) for each in left_out] == [("answer why", True)]
    page = (tmp_path / "report.html").read_text()
    assert 'id="use"' in page
    assert "answer why" in page
    assert "two layouts are equal" in page


def test_a_figure_that_cannot_be_drawn_is_named_at_the_top_and_the_report_is_written(
    results: list[Result], figures: Path
) -> None:
    (figures / "allreduce.html").write_text(svg.MISSING)
    left_out = list[LeftOut]()
    page = render(results, figures, left_out=left_out)
    assert [(each.what, each.ours) for each in left_out] == [("figure of allreduce", True)]
    assert page.index("figure of allreduce") < page.index('id="findings"')
