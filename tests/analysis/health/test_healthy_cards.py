"""Of every GPU in gpu_specs.yaml a healthy box gets no alarm, and one that computes too slowly does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from scalecard.analysis import limits, published_figures
from scalecard.analysis.health.alerts import alerts, verdicts
from scalecard.records.record import Record, Result, Telemetry
from scalecard.report.section import Section
from scalecard.report.sections.health import findings
from support.builders import gpu_state, hardware_state, timed
from support.health_boxes import Box
from support.projects import ROOT

SHEETS: dict[str, Any] = yaml.safe_load((ROOT / "workflow" / "reference" / "gpu_specs.yaml").read_text())["gpus"]
CAPPED = [name for name, sheet in SHEETS.items() if "shares" in sheet.get("reached", {})]
BOOSTED = [name for name, sheet in SHEETS.items() if "most" in sheet.get("reached", {})]
GIB = 2**30
UNKNOWN = "NVIDIA GeForce RTX 6090"  # has no entry


def built(gpu: str, count: int, **faults: Any) -> Box:
    """As such GPUs are built in: on switches, with bridges between pairs, or with nothing but PCIe."""
    link = SHEETS[gpu]["gpu_link"]
    num_links, in_pairs = link.get("links", 0), "pairs" in link.get("note", "")
    if num_links and not in_pairs:
        return Box(gpu=gpu, count=count, switched=num_links, **faults)
    if num_links and count % 2 == 0:
        bridges = [[num_links * (a // 2 == b // 2 and a != b) for b in range(count)] for a in range(count)]
        return Box(gpu=gpu, count=count, links=bridges, **faults)
    return Box(gpu=gpu, count=count, **faults)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("gpu", SHEETS)
def test_a_healthy_box_of_every_card_gets_no_alert(gpu: str, count: int) -> None:
    result = built(gpu, count).result()
    assert [alert.text for alert in alerts(result)] == []
    words = {verdict.verdict for verdict in verdicts(result)}
    assert words <= {"normal", "not judged"}
    assert "normal" in words


@pytest.mark.parametrize(
    ("gpu", "count"), [*((gpu, count) for gpu in SHEETS for count in (2, 4)), *((gpu, 1) for gpu in CAPPED)]
)
def test_a_card_that_computes_30_percent_slower_than_healthy_ones_is_found(gpu: str, count: int) -> None:
    """Beside its peers; a card alone beside what such cards were published to reach."""
    (alert,) = alerts(built(gpu, count, speed={count - 1: 0.7}).result())
    assert alert.what.startswith(f"GPU {count - 1}: computing")
    assert alert.verdict in ("odd one out", "low")


HEAT = {"thermal slowdown (software)": 0.8}


@pytest.mark.parametrize("gpu", [name for name in SHEETS if "Laptop" in name])
def test_a_laptop_that_throttles_under_a_sustained_load_is_no_alert(gpu: str) -> None:
    """Its fans are not made for that; what the hardware itself stops is a fault there, too."""
    assert alerts(Box(gpu=gpu, count=1, held=HEAT).result()) == []
    (alert,) = alerts(Box(gpu=gpu, count=1, held={"hardware slowdown": 0.8}).result())
    assert alert.verdict == "slowed down"
    (alert,) = alerts(Box(gpu=gpu.removesuffix(" Laptop GPU"), count=1, held=HEAT).result())
    assert alert.verdict == "slowed down"


def section(make_result: Callable[..., Result], box: Box, experiment: str, *records: Record) -> Section:
    spec = {"size": 64, "products": 3, "bytes": [GIB]}
    return Section.of(make_result(list(records), experiment=experiment, spec=spec, environment=box.environment))


def product(gpu: str, dtype: str, share: float) -> Record:
    """Products at this share of the peak."""
    spec = published_figures.gpu_spec(gpu)
    assert spec
    rate = share * (spec.peak_tflops[dtype] or 0) * 1e12
    case = {"mode": "single", "devices": 1, "dtype": dtype, "size": 8192, "products": 10}
    return timed([2 * 8192.0**3 * 10 / rate] * 12, **case)


def healthy_products(box: Box) -> list[Record]:
    spec = published_figures.gpu_spec(box.gpu)
    assert spec
    return [product(box.gpu, dtype, box.share(dtype)) for dtype, peak in spec.peak_tflops.items() if peak]


def healthy_copies(box: Box) -> list[Record]:
    """Copies within the first GPU, from and to the host, and to the second GPU, at the rates of the box."""
    state = gpu_state(pcie_gen=box.slot(0)[0], pcie_width=box.slot(0)[1])
    link = {"part": "host link", "device": 0, "at_once": False, "memory": "pinned", "bytes": GIB}
    seconds = {
        (0, 0): box.seconds({"part": "memory", "device": 0, "access": "copy", "bytes": GIB}),
        ("host", 0): box.seconds({**link, "direction": "to device"}),
        (0, 1): box.seconds({"part": "device link", "source": 0, "target": 1, "at_once": False, "bytes": GIB}),
    }
    watched = Telemetry(rounds_id="r", state=hardware_state(*[state] * box.count))
    about = {"part": "matrix", "memory": "pinned", "call": "non_blocking", "bytes": GIB}
    return [
        replace(timed([time] * 12, **about, source=source, target=target), telemetry=[watched])
        for (source, target), time in seconds.items()
        if box.count > 1 or target != 1
    ]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("gpu", SHEETS)
def test_products_and_copies_of_a_healthy_card_are_normal(
    make_result: Callable[..., Result], gpu: str, count: int
) -> None:
    box = built(gpu, count)
    judged = [
        *section(make_result, box, "async_timing", *healthy_products(box)).judgements,
        *section(make_result, box, "copy_cost", *healthy_copies(box)).judgements,
    ]
    assert [one.text for one in judged if one.verdict != "normal"] == []
    assert any(one.what.startswith("Within device 0") for one in judged)


@pytest.mark.parametrize("gpu", CAPPED)
def test_products_of_a_capped_card_that_is_30_percent_slower_are_low(
    make_result: Callable[..., Result], gpu: str
) -> None:
    shares = SHEETS[gpu]["reached"]["shares"]
    slow = [product(gpu, dtype, 0.7 * share) for dtype, share in shares.items()]
    judged = section(make_result, Box(gpu=gpu, count=1), "async_timing", *slow).judgements
    assert [one.verdict for one in judged] == ["low"] * len(shares)


@pytest.mark.parametrize("gpu", BOOSTED)
def test_what_healthy_cards_reach_is_not_above_the_limit_and_more_is(
    make_result: Callable[..., Result], gpu: str
) -> None:
    """Half more than what was published is a wrong measurement."""
    for dtype, most in SHEETS[gpu]["reached"]["most"].items():
        box = Box(gpu=gpu, count=1)
        records = product(gpu, dtype, most), product(gpu, dtype, 1.5 * most)
        words = [section(make_result, box, "async_timing", record).judgements[0].verdict for record in records]
        assert words == ["normal", "above the limit"]


@pytest.mark.parametrize(
    "name",
    [
        *("NVIDIA A10", "NVIDIA A10G", "NVIDIA A100-SXM4-80GB", "NVIDIA A30", "NVIDIA A40", "NVIDIA RTX A6000"),
        *("NVIDIA L4", "NVIDIA L40", "NVIDIA L40S", "NVIDIA RTX 6000 Ada Generation"),
        *("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA H200 NVL"),
        *("NVIDIA GH200 480GB", "NVIDIA B200", "NVIDIA B300 SXM6 AC", "NVIDIA GB200", "NVIDIA GB300"),
        *("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        *("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090 Laptop GPU"),
        *("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    ],
)
def test_a_name_that_drivers_print_finds_its_own_entry(name: str) -> None:
    spec = published_figures.gpu_spec(name)
    assert spec
    assert spec.name == name


@pytest.mark.parametrize(
    "name",
    [
        *("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "NVIDIA A100X", "NVIDIA A16"),
        *("NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 5090 D", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA L20"),
        *("NVIDIA H20", "NVIDIA H800", "NVIDIA GH200 144G HBM3e", "NVIDIA RTX 6000D", "GRID A100-40C", ""),
    ],
)
def test_a_slice_or_a_relative_has_no_entry_of_another_card(name: str) -> None:
    assert published_figures.gpu_spec(name) is None


def test_no_name_stands_for_two_cards() -> None:
    names = [name for known, sheet in SHEETS.items() for name in (known, *sheet["aliases"])]
    assert len(names) == len(set(names))


def as_unknown(result: Result) -> Result:
    gpus = [{**gpu, "name": UNKNOWN} for gpu in result.environment["gpus"]]
    return replace(result, environment={**result.environment, "gpus": gpus})


@pytest.mark.parametrize(("count", "judged"), [(1, "not judged"), (4, "compared with one another only")])
def test_a_gpu_without_an_entry_is_compared_with_its_like_only_and_that_is_told(count: int, judged: str) -> None:
    result = as_unknown(Box(gpu="NVIDIA GeForce RTX 4090", count=count).result())
    assert alerts(result) == []
    (told,) = (finding.text for finding in findings(result) if "gpu_specs.yaml" in finding.text)
    assert f"{UNKNOWN} for float32 products and bfloat16 products and memory" in told
    assert judged in told
    compute = [verdict for verdict in verdicts(result) if verdict.kind == "compute"]
    assert {verdict.verdict for verdict in compute} == {"not judged" if count == 1 else "normal"}
    assert {verdict.share for verdict in compute} == {None}


def test_a_slow_gpu_without_an_entry_is_found_beside_its_like() -> None:
    (alert,) = alerts(as_unknown(Box(gpu="NVIDIA GeForce RTX 4090", count=4, speed={2: 0.7}).result()))
    assert alert.what.startswith("GPU 2: computing")


def test_of_a_card_whose_figures_are_known_nothing_is_said_to_lack() -> None:
    result = Box(gpu="NVIDIA L40S", count=2).result()
    assert not [finding.text for finding in findings(result) if "gpu_specs.yaml" in finding.text]
    assert limits.of_products(result, "bfloat16")
