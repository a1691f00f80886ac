"""The report's section on other platforms: a sentence and a forest plot, or between unlike hardware speed-ups."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scalecard.analysis import platforms
from scalecard.analysis.compare import compare
from scalecard.cli import compare_output
from scalecard.records.record import Record, Result
from scalecard.report import changes_section, pages
from scalecard.report.section import Section
from support.builders import timed

Make = Callable[..., Result]
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"
SPEC = {"size": 4000, "sizes": [4000]}
CASE: dict[str, Any] = {"mode": "single", "dtype": "float32", "size": 4000, "products": 50}


@pytest.fixture
def of_gpus(make_result: Make) -> Callable[..., list[Result]]:
    """A result of `async_timing` on GPUs of a name, with these records."""

    def of(platform: str, gpu: str, count: int, records: list[Record], driver: str = "580") -> list[Result]:
        result = make_result(records, platform=platform, spec=SPEC)
        gpus = {"kind": "cuda", "gpus": [gpu] * count, "num_devices": count, "driver": driver}
        machine = {**result.environment["machine"], **gpus}
        return [replace(result, environment={**result.environment, "machine": machine, "emulated": False})]

    return of


def products(seconds: float, **more: Any) -> list[Record]:
    """Products in float32 and float64, and how long they take to launch, which is always the same."""
    kinds = [
        ("time", seconds, CASE),
        ("time", 2 * seconds, {**CASE, "dtype": "float64"}),
        ("enqueue_time", 0.001, CASE),
    ]
    return [
        timed(
            *[[value * (1 + 1e-5 * (i - 4)) for i in range(9)]] * 3,
            rounds_id=str(seconds),
            metric=metric,
            **case,
            **more,
        )
        for metric, value, case in kinds
    ]


def page(old: list[Result], new: list[Result]) -> str:
    sections = [[Section.of(result) for result in side] for side in (old, new)]
    made = pages.render("changes.html.j2", platforms=[new[0].platform], changes=[changes_section.part(*sections)])
    return made.replace("\u00a0", " ")


def test_like_hardware_gets_a_sentence_a_plot_and_folded_cases(of_gpus: Callable[..., list[Result]]) -> None:
    text = page(of_gpus("old", H100, 8, products(1.0), "575"), of_gpus("new", H100, 8, products(2.083)))
    assert "After driver 575 -&gt; 580: asynchronous timing 108 % slower in 2 of 3 cases" in re.sub(r"\s+", " ", text)
    assert text.count("<circle") == 1
    assert "+108 %<small>0 % to +108 %</small></td>" in text, "the marks have their numbers beside"
    assert ">+108 %<td" in text, "and so has the table of cases"
    assert "2 of 2 cases that became slower or faster" in text
    assert "<li>driver 575 -&gt; 580</li>" in text


def test_unlike_hardware_gets_speed_ups_and_no_changes(of_gpus: Callable[..., list[Result]]) -> None:
    text = page(of_gpus("old", A100, 4, products(1.0), "575"), of_gpus("new", H100, 8, products(0.5)))
    assert "<h3>8 x H100 beside 4 x A100</h3>" in text
    row = re.search(r"<tr><td>Asynchronous timing(.*)", text)
    assert row
    cells = re.findall(r"<td[^>]*>([^<]*)", row.group(1))
    assert cells == ["2.00x", "2.00x to 2.00x", "2", "12.8 TFLOP/s float32", "6.4 TFLOP/s float32"], "without launching"
    assert "<circle" not in text
    assert "<li>" not in text
    assert "slower" not in text
    assert "Besides the hardware, these differ: driver 575 -&gt; 580." in text


def test_platforms_without_a_case_in_common_say_so(of_gpus: Callable[..., list[Result]]) -> None:
    old, new = of_gpus("old", A100, 4, products(1.0, other=1)), of_gpus("new", H100, 8, products(1.0))
    unlike = page(old, new)
    assert "no case in common" in unlike
    assert "6.4 TFLOP/s float32" in unlike
    like = page(of_gpus("old", H100, 8, old[0].records), new)
    assert "nothing to compare: old (async_timing) and new (async_timing) have no measured case in common." in like


def test_only_the_most_changed_of_many_cases_are_listed(of_gpus: Callable[..., list[Result]]) -> None:
    many = [
        [timed([t + 1e-6 * i for i in range(8)], rounds_id=str(t), **CASE, number=n) for n in range(60)] for t in (1, 9)
    ]
    text = page(of_gpus("old", H100, 8, many[0]), of_gpus("new", H100, 8, many[1]))
    assert "the 40 most changed of 60 cases" in re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, None),
        ({"driver": "1", "gpu_uuid_hashes": ["f"], "cpu": "other", "cores": 1}, None),
        ({"gpus": [A100] * 8}, ("8 x H100", "8 x A100")),
        ({"gpus": [H100] * 4, "num_devices": 4}, ("8 x H100", "4 x H100")),
        ({"num_devices": 4}, ("8 x H100", "4 x H100")),
        ({"gpus": ["NVIDIA H100 PCIe"] * 8}, ("8 x H100 80GB", "8 x H100 PCIe")),
        ({"gpus": ["NVIDIA GeForce RTX 4090"] * 2}, ("8 x H100", "2 x RTX 4090")),
        ({"gpus": ["NVIDIA A100-SXM4-40GB MIG 1g.5gb"]}, ("8 x H100", "1 x A100-SXM4-40GB MIG 1g.5gb")),
        ({"gpus": [H100, H100, A100]}, ("8 x H100", "2 x H100 and 1 x A100")),
        ({"gpus": [], "cpu": "EPYC", "cores": 2}, ("8 x H100", "EPYC, 2 cores (emulated)")),
    ],
)
def test_what_is_like_hardware(
    of_gpus: Callable[..., list[Result]], changes: dict[str, Any], names: tuple[str, str] | None
) -> None:
    (one,) = of_gpus("box", H100, 8, [])
    other = replace(one, environment={**one.environment, "machine": {**one.environment["machine"], **changes}})
    assert platforms.same_hardware([one], [other]) == (names is None)
    if names:
        assert platforms.nicknames([one], [other]) == names


@pytest.mark.parametrize(
    ("facts", "alike"), [({"driver": "1"}, True), ({"cpu": "other"}, False), ({"cores": 99}, False)]
)
def test_without_gpus_the_cpu_is_the_hardware(make_result: Make, facts: dict[str, Any], alike: bool) -> None:
    one = make_result([])
    other = replace(one, environment={**one.environment, "machine": {**one.environment["machine"], **facts}})
    assert platforms.same_hardware([one], [other]) == alike


def test_more_nodes_are_other_hardware(make_result: Make) -> None:
    one = make_result([])
    wide = replace(one, environment={**one.environment, "nodes": [{"host": "a", "differs": []}] * 2})
    assert not platforms.same_hardware([one], [one, wide])
    assert platforms.nicknames([one], [one, wide])[1].startswith("2 nodes of ")


def test_the_terminal_and_the_page_say_the_same(of_gpus: Callable[..., list[Result]]) -> None:
    for gpu, said in ((H100, "slower in 2 of 3 cases"), (A100, "8 x A100 beside 8 x H100")):
        found = compare(of_gpus("old", H100, 8, products(1.0)), of_gpus("new", gpu, 8, products(1.1)))
        output = compare_output.output(found)
        assert all(said in view for view in (output.text, output.json, compare_output.page(found)))
