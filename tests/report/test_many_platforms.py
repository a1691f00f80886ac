"""Of many platforms at most four are drawn; the others are one row each, and the report stays small."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scalecard.analysis import platforms
from scalecard.analysis.platforms import gather, selection
from scalecard.figures import style
from scalecard.records.files import as_json
from scalecard.records.record import Result
from scalecard.report import answers, figure_files, render, sections
from support.builders import repeated
from support.every_experiment import every_result, machine_named

Make = Callable[..., Result]


def of_platforms(make_result: Make, *names: str, **changes: Any) -> list[Result]:
    """A result of each platform, measured one day after another."""
    spec = {"size": 4, "sizes": [4]}
    return [
        make_result(
            [repeated(1.0, mode="single", dtype="float32", size=4, products=1, devices=1)],
            platform=name,
            spec=spec,
            finished=f"2026-01-{day:02}T00:00:00+00:00",
            **changes,
        )
        for day, name in enumerate(names, 1)
    ]


def write_copy(root: Path, result: Result, text: str, platform: str) -> None:
    """The same result of another machine."""
    there = machine_named(platform, 0).fingerprint
    own = text.replace(result.platform, platform).replace(result.environment["fingerprint"], there)
    path = root / platform / f"{result.experiment}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(own)


@pytest.mark.parametrize(
    ("show", "expected"),
    [
        (None, ["here", "h", "g", "f"]),
        (["b", "a", "nowhere"], ["here", "b", "a"]),
        (["here", "b", "b"], ["here", "b"]),
        ([], ["here"]),
        (list("abcdefgh"), ["here", "a", "b", "c"]),
    ],
)
def test_this_platform_is_drawn_and_three_more(make_result: Make, show: list[str] | None, expected: list[str]) -> None:
    assert selection(of_platforms(make_result, "here", *"abcdefgh"), show) == expected


def test_gpus_are_drawn_beside_emulated_devices_only_if_they_are_named(make_result: Make) -> None:
    here, gpus = of_platforms(make_result, "here", "gpus")
    gpus = replace(gpus, environment={**gpus.environment, "emulated": False})
    assert selection([here, gpus]) == ["here"]
    assert selection([here, gpus], ["gpus"]) == ["here", "gpus"]


def test_the_others_are_rows_and_an_unknown_name_is_told(make_result: Make, tmp_path: Path) -> None:
    results = of_platforms(make_result, "here", *"abcdefgh")
    figure_files.save(sections.load("async_timing").plot(results[:1]), tmp_path / "async_timing.html")
    text = render.render(results, tmp_path, show=["b", "nowhere"])
    assert "7 more platforms" in text
    rows = re.findall(r'<th scope="row">(\w) \(emulated\)<td>[^<]+<td>([^<]+)<td>([^<\n]+)', text)
    assert [name for name, *_ in rows] == list("hgfedca"), "those measured last first"
    assert rows[0][1:] == ("2026-01-09 00:00", "1.28e-10\u00a0TFLOP/s float32")
    assert "names nowhere, of which there is no result" in text
    assert text.count('id="changes"') == 1
    assert "From b to this one" in text
    assert "From a to this one" not in text


def test_a_platform_looks_the_same_in_every_figure_and_the_current_one_stands_out(make_result: Make) -> None:
    results = of_platforms(make_result, "here", "a", "b", "c")
    labels = [platforms.platform_label(result) for result in results]

    def looks(*places: int) -> dict[str, tuple[str, str]]:
        style.tell_platforms_apart([results[place] for place in places], ["c", "a"])
        return {labels[place]: (style.colour(labels[place]), style.marker(labels[place])) for place in places}

    every = looks(0, 3, 1, 2)
    assert looks(0, 1) == {label: every[label] for label in (labels[0], labels[1])}, "which c has not measured"
    assert [every[label][0] for label in (labels[0], labels[3], labels[1])] == list(style.PALETTE[:3])
    dull = {look.colour for look in style.DULL}
    assert every[labels[2]][0] in dull
    assert len(set(every.values())) == 4
    style.tell_platforms_apart(results, None)
    assert [style.colour(label) in dull for label in labels] == [False, True, True, True]


@pytest.mark.workflow
def test_the_report_of_fifty_platforms_is_small_and_soon_there(tmp_path: Path) -> None:
    """Within three times what reading takes, and 3 MB: results as the smoke workflow leaves them, on fifty machines."""
    root = tmp_path / "results"
    (root / "figures").mkdir(parents=True)
    for result in every_result("platform-00"):
        text = as_json(result)
        for number in range(50):
            write_copy(root, result, text, f"platform-{number:02}")
    for name in (*sections.names(), *answers.names()):
        (root / "figures" / f"{name}.html").write_text("<svg></svg>")
    paths = sorted(root.glob("platform-*/*.json"))
    started = time.process_time()
    gather(paths)
    read = time.process_time()
    render.write(paths, root / "figures", root / "report.html")
    assert time.process_time() - read < 3 * (read - started)
    assert (root / "report.html").stat().st_size < 3e6
    assert "46 more platforms" in (root / "report.html").read_text()
