"""Is a number normal? Rates beside the hardware's limit, and times beside those published for the same device."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scalecard.analysis import published_figures
from scalecard.analysis.health.verdict import Kind
from scalecard.analysis.limits import Limit, beside_published, rated
from scalecard.analysis.published_figures import Entry, Ours
from scalecard.hardware.environment import environment
from scalecard.hardware.machine import probe
from scalecard.records.record import Record, Result, Telemetry
from scalecard.report.section import Section
from support.builders import copy_case, gpu_state, hardware_state, timed
from support.fake_nvml import A100, GTX, H100, Board, FakeNvml, box, linked

GIB = 2**30
TIMES, RATES = ("s", "s/epoch", "ms"), ("samples/s", "images/s", "GB/s", "TFLOP/s")


@pytest.fixture
def on_gpus(
    install_gpus: Callable[..., FakeNvml], make_result: Callable[..., Result]
) -> Callable[[list[Board], list[Record]], Result]:
    """A result of copy_cost on these boards."""

    def make(boards: list[Board], records: list[Record]) -> Result:
        install_gpus(boards)
        spec = {"size": 64, "products": 3, "bytes": [4096, GIB]}
        return make_result(records, experiment="copy_cost", spec=spec, environment=environment(probe()))

    return make


def copied(ends: tuple[str | int, str | int], gbs: float, **seen: Any) -> Record:
    """A copy of a GiB at a rate, while the first GPU's link was `seen` so."""
    watched = Telemetry(rounds_id="r", state=hardware_state(gpu_state(**seen)))
    return replace(timed([GIB / (gbs * 1e9)] * 12, **copy_case(ends, GIB)), telemetry=[watched])


def test_small_copies_alone_say_nothing_of_a_rate(on_gpus: Callable[..., Result]) -> None:
    """As of a run that ended before the large ones."""
    small = replace(copied(("host", 0), 1.5), case={**copied(("host", 0), 1.5).case, "bytes": 16384})
    assert Section.of(on_gpus(box(H100, 1), [small])).judgements == []


@pytest.mark.parametrize(
    ("rate", "advice", "verdict"),
    [
        *((80, "", "normal"), (75, "", "normal"), (74.9, "", "low"), (60, "", "low")),
        *(
            (104.9, "", "normal"),
            (105.1, "", "above the limit"),
            (80, "reseat it", "low"),
            (120, "reseat it", "above the limit"),
        ),
    ],
)
def test_a_rate_is_judged_by_its_share_of_the_limit(rate: float, advice: str, verdict: str) -> None:
    """Of 100 GB/s, 75 are normal from this limit's own share on; up to 105 the vendor's figure may be off."""
    judgement = rated("copy", rate, Limit(100, "the link", 0.75, advice), "GB/s", Kind.HOST_LINK, [0])
    assert judgement.verdict == verdict
    impossible = "more than 100 % is impossible, so the vendor's figure in gpu_specs.yaml is wrong"
    assert (impossible if verdict == "above the limit" else advice) in judgement.text


def test_a_link_at_half_its_width_is_low_however_fast_and_says_what_to_look_at(
    on_gpus: Callable[..., Result],
) -> None:
    boards = box(H100, 1)
    boards[0].width = (8, 16)
    result = on_gpus(boards, [copied(("host", 0), 30, pcie_gen=5, pcie_width=8)])
    (judgement,) = Section.of(result).judgements
    assert judgement.verdict == "low"
    assert "PCIe 5 x8" in judgement.value
    assert {"x16", "x8:"} <= set(judgement.advice.split())


def test_a_link_at_its_full_width_is_judged_by_its_rate(on_gpus: Callable[..., Result]) -> None:
    for rate, verdict in ((55, "normal"), (25, "low")):
        result = on_gpus(box(H100, 1), [copied(("host", 0), rate, pcie_gen=5, pcie_width=16)])
        assert [judgement.verdict for judgement in Section.of(result).judgements] == [verdict]


def test_of_many_pairs_the_slow_one_is_low_and_the_best_and_worst_are_told(on_gpus: Callable[..., Result]) -> None:
    """Of the 100 GB/s of four links 80 are normal, and 20 are not."""
    pairs = [copied((a, b), (20 if (a, b) == (0, 1) else 80) + 0.1 * b) for a, b in itertools.permutations(range(4), 2)]
    links = [[4 * (a != b) for b in range(4)] for a in range(4)]
    section = Section.of(on_gpus(linked(A100, links), pairs))
    verdicts = {judgement.what.split(",")[0]: judgement.verdict for judgement in section.judgements}
    assert {name for name, verdict in verdicts.items() if verdict == "low"} == {"Device 0 to 1"}
    assert len(verdicts) == 12
    told = [finding.text.split(",")[0] for finding in section.findings if finding.text.startswith("Device")]
    assert sorted(told)[0] == "Device 0 to 1"
    assert len(told) == 2


@pytest.mark.parametrize(
    ("unit", "ours", "gpu", "verdicts"),
    [
        # Lower is better: up to 15 % more is normal. Higher is better: 1/0.88 = 1.136 and 1/0.86 = 1.163.
        *((u, 1.14, GTX.name, ["normal"]) for u in TIMES),
        *((u, 1.16, GTX.name, ["low"]) for u in TIMES),
        *((u, 0.50, GTX.name, ["normal"]) for u in TIMES),
        *((u, 0.88, GTX.name, ["normal"]) for u in RATES),
        *((u, 0.86, GTX.name, ["low"]) for u in RATES),
        *((u, 2.00, GTX.name, ["normal"]) for u in RATES),
        ("x", 0.5, GTX.name, []),  # of a factor more may be better or worse
        ("s", 9.0, H100.name, []),
        ("s", None, GTX.name, []),
    ],
)
def test_published_figures_are_compared_on_the_same_device(
    on_gpus: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    unit: str,
    ours: float | None,
    gpu: str,
    verdicts: list[str],
) -> None:
    monkeypatch.setattr(published_figures, "published", lambda experiment: [step_time(1.0, unit, gpu)])
    values = [] if ours is None else [Ours(metric="step_time", value=each, gpus=n) for n, each in ((1, 100), (2, ours))]
    found = beside_published(on_gpus(box(GTX, 2), []), published_figures.matches("any", values))
    assert [judgement.verdict for judgement in found] == verdicts


def step_time(value: float, unit: str = "s", gpu: str = GTX.name, **more: Any) -> Entry:
    """Of two GPUs."""
    empty = dict.fromkeys(("note", "source", "locator", "url"), "")
    return Entry(id="e", metric="step_time", value=value, unit=unit, gpu=gpu, gpus=2, settings={}, **empty, **more)


def test_as_good_as_the_worst_published_is_normal_and_what_includes_more_is_no_measure(
    on_gpus: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.3 s are 30 % more than 1 s and 8 % more than 1.2 s; that 2 s were published with a loader says nothing."""
    published = [step_time(1.0), step_time(1.2, gpu="GeForce GTX 1080Ti"), step_time(2.0, includes=("loader",))]
    monkeypatch.setattr(published_figures, "published", lambda experiment: published)
    for seconds, verdict in ((1.3, "normal"), (1.4, "low")):
        found = published_figures.matches("any", [Ours(metric="step_time", value=seconds, gpus=2)])
        (judgement,) = beside_published(on_gpus(box(GTX, 2), []), found)
        assert (judgement.what, judgement.verdict) == ("Step time on 2 GPUs", verdict)
        assert "published for this device: 1.2 s" in judgement.expectation


@pytest.mark.parametrize("board", [H100, A100, GTX])
def test_the_boards_of_these_tests_have_a_sheet_of_their_vendor(board: Board) -> None:
    sheet = published_figures.gpu_spec(board.name)
    assert sheet
    assert sheet.peak_tflops["float32"]
