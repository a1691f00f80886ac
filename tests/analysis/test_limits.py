"""Rates and limits against numbers that were worked out by hand, each with its source."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scalecard.analysis import limits, published_figures
from scalecard.figures import points
from scalecard.hardware.environment import environment
from scalecard.hardware.machine import probe
from scalecard.records.record import Record, Result, Telemetry
from scalecard.report.sections import allreduce, copy_cost
from support.builders import copy_case, gpu_state, hardware_state, timed
from support.fake_nvml import A100, GTX, H100, Board, FakeNvml, box, linked

OnGpus = Callable[..., Result]


@pytest.fixture
def on_gpus(install_gpus: Callable[..., FakeNvml], make_result: Callable[..., Result]) -> OnGpus:
    """A result of these boards."""

    def make(boards: list[Board], *records: Record, **facts: Any) -> Result:
        install_gpus(boards)
        return make_result(list(records), environment=environment(probe()), **facts)

    return make


def all_reduce(devices: int, size: int, seconds: float, **case: Any) -> Record:
    return timed([seconds] * 6, algorithm="torch.distributed", devices=devices, bytes=size, **case)


def copied(ends: tuple[str | int, str | int], size: int, seconds: float, *links: tuple[int, int]) -> Record:
    """A copy, while the GPUs' links had these generations and widths."""
    states = [gpu_state(pcie_gen=generation, pcie_width=width) for generation, width in links]
    watched = Telemetry(rounds_id="r", state=hardware_state(*states))
    return replace(timed([seconds] * 6, **copy_case(ends, size)), telemetry=[watched])


# nccl-tests, doc/PERFORMANCE.md: busbw = S/t x 2 (n - 1)/n.
#   2 GPUs:  1 GB in 50 ms: algbw  20, x 2 x 1/2 = 1    ->  20 GB/s
#   4 GPUs:  1 GB in 10 ms: algbw 100, x 2 x 3/4 = 1.5  -> 150 GB/s
#   8 GPUs:  1 GB in 10 ms: algbw 100, x 2 x 7/8 = 1.75 -> 175 GB/s
#   8 GPUs, as a maintainer expects of H100s (nccl-tests, issue 212): algbw 275 -> 481.25, printed as 480
BUS = [(2, 0.050, 20.0), (4, 0.010, 150.0), (8, 0.010, 175.0), (8, 1 / 275, 481.25)]


@pytest.mark.parametrize(("devices", "seconds", "gbs"), BUS)
def test_bus_bandwidth_is_nccl_tests(devices: int, seconds: float, gbs: float) -> None:
    assert limits.bus_bandwidth(all_reduce(devices, 1_000_000_000, seconds)) == pytest.approx(gbs)


# One way, decimal GB. STREAM (McCalpin) counts a copy's bytes twice, because it reads and writes them; so does a
# vendor's memory bandwidth. What crosses a link is counted once.
@pytest.mark.parametrize(
    ("ends", "size", "seconds", "gbs"),
    [
        (("host", 0), 1_000_000_000, 0.040, 25.0),
        ((0, "host"), 1_000_000_000, 0.040, 25.0),
        ((0, 1), 1_000_000_000, 0.004, 250.0),
        (("host", "host"), 1_000_000_000, 0.100, 10.0),
        ((0, 0), 1_000_000_000, 0.001, 2000.0),
        (("host", 0), 2**30, 0.040, 26.8435456),  # 1 GiB = 1.073741824 GB
    ],
)
def test_a_copys_rate_counts_bytes_within_a_device_twice(
    ends: tuple[str | int, str | int], size: int, seconds: float, gbs: float
) -> None:
    assert limits.copy_rate(copied(ends, size, seconds)) == pytest.approx(gbs)


# A product of n x n matrices is n^2 sums of n products: n^3 multiplications and as many additions.
#   n = 4000, 50 products: 2 x 64e9 x 50 = 6.4 TFLOP; in 0.5 s 12.8 TFLOP/s (Dive into Deep Learning's workload)
#   n = 1000, 1 product:   2 GFLOP; in 1 ms 2 TFLOP/s
@pytest.mark.parametrize(("size", "products", "seconds", "tflops"), [(4000, 50, 0.5, 12.8), (1000, 1, 0.001, 2.0)])
def test_a_product_has_a_multiplication_and_an_addition_each(
    size: int, products: int, seconds: float, tflops: float
) -> None:
    assert limits.product_rate(timed([seconds] * 6, size=size, products=products)) == pytest.approx(tflops)


# PCI-SIG's base specifications, per lane and direction: GT/s x encoding / 8 bits.
#   1: 2.5 x 8/10 / 8 = 0.25          4: 16 x 128/130 / 8 = 1.96923
#   2: 5 x 8/10 / 8 = 0.5             5: 32 x 128/130 / 8 = 3.93846
#   3: 8 x 128/130 / 8 = 0.98462      6: 64 x 242/256 / 8 = 7.5625 (a FLIT of 256 bytes has 8 of CRC and 6 of FEC)
@pytest.mark.parametrize(
    ("generation", "lane"), [(1, 0.25), (2, 0.5), (3, 0.98462), (4, 1.96923), (5, 3.93846), (6, 7.5625)]
)
def test_a_pcie_lanes_rate_is_its_transfers_less_the_encoding(generation: int, lane: float) -> None:
    assert limits.pcie_gbs(generation, 1) == pytest.approx(lane, rel=1e-3)
    assert limits.pcie_gbs(generation, 16) == pytest.approx(16 * lane, rel=1e-3)


def test_the_sheets_have_the_rate_of_sixteen_lanes() -> None:
    """15.75, 31.51 and 63.02 GB/s: sixteen times 0.98462, 1.96923 and 3.93846."""
    found = {name: published_figures.gpu_spec(name) for name in (GTX.name, A100.name, H100.name)}
    assert [spec and spec.pcie_one_way_gbs for spec in found.values()] == [15.75, 31.51, 63.02]


# Vendors' sheets, and what they follow from: units x operations per cycle x boost clock, bus width x data rate.
#   GTX 1080 Ti: 3584 cores x 2 x 1.582 GHz = 11.34; 352 bit x 11 Gbit/s / 8 = 484; no NVLink
#   A100 40 GB:  108 SMs x 64 x 2 x 1.41 GHz = 19.49; 108 x 4 tensor cores x 256 x 2 x 1.41 = 311.9, half of it in TF32;
#                5120 bit x 2.43 Gbit/s / 8 = 1555; 12 links x 25 GB/s = 300
#   H100 SXM:    132 SMs x 128 x 2 x 1.98 GHz = 66.9; 132 x 4 x 512 x 2 x 1.83 = 989.4, half of it in TF32;
#                5120 bit x 5.2336 Gbit/s / 8 = 3350; 18 links x 25 GB/s = 450
SHEETS = [
    (GTX, {"float32": 11.34, "tf32": None, "bfloat16": None}, 484, None),
    (A100, {"float32": 19.49, "tf32": 155.9, "bfloat16": 311.9}, 1555, 300),
    (H100, {"float32": 66.9, "tf32": 494.7, "bfloat16": 989.4}, 3350, 450),
]


@pytest.mark.parametrize(("board", "tflops", "memory", "nvlink"), SHEETS)
def test_peaks_are_dense_and_one_way(
    on_gpus: OnGpus, board: Board, tflops: dict[str, float | None], memory: float, nvlink: float | None
) -> None:
    result = on_gpus(box(board, 2))
    for dtype, peak in tflops.items():
        limit = limits.of_products(result, dtype)
        assert (limit and limit.rate) == (peak and pytest.approx(peak, rel=2e-3)), dtype
        assert limit is None or limit.least == 0.50
    within = limits.of_copy(result, copied((0, 0), 10**9, 0.01))
    assert within
    assert (within.rate, within.least) == (memory, 0.65)
    between = limits.of_copy(result, copied((0, 1), 10**9, 0.01))
    assert (between and between.rate) == nvlink


# What healthy cards were published to reach: TFLOP/s of 8192-cubed products (zzc0721/torch-performance-test-data, issue
# 120; T4 at its best size, pull request 29), GB/s read and written by a copy (NVIDIA/nccl issue 1264).
HEALTHY = [("NVIDIA L4", "float32", 10.66), ("NVIDIA L4", "bfloat16", 59.4), ("Tesla T4", "float32", 4.43)]
COPIES = [("NVIDIA H100 80GB HBM3", 2475), ("NVIDIA A100-SXM4-80GB", 1500)]


@pytest.mark.parametrize(("name", "dtype", "tflops"), HEALTHY)
def test_a_card_under_its_power_cap_is_judged_by_what_such_cards_reach(
    on_gpus: OnGpus, name: str, dtype: str, tflops: float
) -> None:
    limit = limits.of_products(on_gpus(box(replace(H100, name=name), 1)), dtype)
    assert limit
    assert 0.7 * tflops < limit.least * limit.rate < tflops, "healthy is normal, 30 % slower is not"


@pytest.mark.parametrize(("name", "gbs"), COPIES)
def test_a_healthy_cards_copy_is_normal(on_gpus: OnGpus, name: str, gbs: float) -> None:
    limit = limits.of_copy(on_gpus(box(replace(H100, name=name), 1)), copied((0, 0), 10**9, 0.01))
    assert limit
    assert 0.7 * gbs < limit.least * limit.rate < gbs, "healthy is normal, 30 % slower is not"


# Of a DGX-1 the first four V100s (six links of 25 GB/s each): one link to two of the others, two to the third.
V100 = Board("Tesla V100-SXM2-16GB", 16 * 2**30, (3, 3), nvlinks=6)
CUBE = [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]]
BRIDGES = [[0, 12, 0, 0], [12, 0, 0, 0], [0, 0, 0, 12], [0, 0, 12, 0]]
FOUR = [[0 if a == b else 4 for b in range(4)] for a in range(4)]


@pytest.mark.parametrize(
    ("boards", "pair", "rate"),
    [
        (box(H100, 8), (5, 6), 450),  # through switches all 18 links lead to every other GPU
        (linked(A100, FOUR), (3, 1), 100),  # 4 of 12 links of 25 GB/s
        (linked(V100, CUBE), (0, 1), 25),
        (linked(V100, CUBE), (0, 3), 50),
        (linked(A100, BRIDGES), (2, 3), 300),
    ],
)
def test_a_copys_limit_is_the_links_that_its_pair_has(
    on_gpus: OnGpus, boards: list[Board], pair: tuple[int, int], rate: float
) -> None:
    limit = limits.of_copy(on_gpus(boards), copied(pair, 10**9, 0.01))
    assert limit
    assert (limit.rate, limit.least, limit.is_nvlink) == (rate, 0.70, True)


@pytest.mark.parametrize(
    ("boards", "used", "rate"),
    [
        (box(H100, 8), 8, 450),
        (box(H100, 8), 2, 450),
        (linked(A100, FOUR), 4, 300),  # 3 x 4 links
        (linked(A100, FOUR), 3, 200),
        (linked(A100, FOUR), 2, 100),
        (linked(V100, CUBE), 4, 100),  # 1 + 1 + 2 links
        (linked(V100, CUBE), 3, 50),  # GPU 0 has one link to either of the others
        (linked(A100, BRIDGES), 2, 300),
    ],
)
def test_an_all_reduces_limit_is_the_links_among_those_that_take_part(
    on_gpus: OnGpus, boards: list[Board], used: int, rate: float
) -> None:
    limit = limits.of_all_reduce(on_gpus(boards), all_reduce(used, 10**9, 0.01))
    assert limit
    assert (limit.rate, limit.least, limit.is_nvlink) == (rate, 0.70, True)


def test_between_pairs_with_bridges_pcie_is_the_limit(on_gpus: OnGpus) -> None:
    """31.5 GB/s of sixteen lanes of PCIe 4: no ring of NVLinks leads around all four."""
    result, seen = on_gpus(linked(A100, BRIDGES)), [(4, 16)] * 4
    pair = limits.of_copy(result, copied((1, 2), 10**9, 0.1, *seen))
    ring = replace(all_reduce(4, 10**9, 0.1), telemetry=copied((0, 1), 0, 0.1, *seen).telemetry)
    for limit, least in ((pair, 0.25), (limits.of_all_reduce(result, ring), 0.10)):
        assert limit
        assert (limit.rate, limit.least, limit.name) == (pytest.approx(31.5, rel=2e-3), least, "PCIe 4 x16")


def test_links_that_lead_nobody_knows_where_have_no_limit(on_gpus: OnGpus) -> None:
    boards = box(A100, 2)
    boards[0].leads_to = [None] * 12
    result = on_gpus(boards)
    assert limits.of_copy(result, copied((0, 1), 10**9, 0.1, (4, 16), (4, 16))) is None
    assert limits.of_all_reduce(result, all_reduce(2, 10**9, 0.1)) is None


def test_a_module_with_its_cpu_is_not_on_pcie(on_gpus: OnGpus) -> None:
    """NVLink-C2C: 900 GB/s both ways together."""
    board = Board("NVIDIA GH200 480GB", 96 * 2**30, (4, 4), width=(1, 16))
    limit = limits.of_copy(on_gpus(box(board, 1)), copied(("host", 0), 10**9, 0.01, (4, 1)))
    assert limit
    assert (limit.rate, limit.least, limit.advice) == (450, 0.50, "")


def test_without_nvlink_the_slowest_link_that_takes_part_is_the_limit(on_gpus: OnGpus) -> None:
    """PCIe 3: sixteen lanes carry 15.75 GB/s, eight 7.88 and four 3.94."""
    result, links = on_gpus(box(GTX, 3)), [(3, 16), (3, 8), (3, 4)]
    expected = {
        ("host", 0): (15.75, 0.75),
        (0, "host"): (15.75, 0.75),
        (0, 1): (7.88, 0.25),
        (2, 1): (3.94, 0.25),
    }
    for ends, (rate, least) in expected.items():
        limit = limits.of_copy(result, copied(ends, 10**9, 0.1, *links))
        assert limit
        assert (limit.rate, limit.least) == (pytest.approx(rate, rel=2e-3), least), ends
    for used, rate in {2: 7.88, 3: 3.94}.items():
        seen = copied((0, 1), 0, 0.1, *links).telemetry
        limit = limits.of_all_reduce(result, replace(all_reduce(used, 10**9, 0.1), telemetry=seen))
        assert limit
        assert (limit.rate, limit.least) == (pytest.approx(rate, rel=2e-3), 0.10)


def test_what_is_not_known_has_no_limit(on_gpus: OnGpus) -> None:
    result = on_gpus(box(H100, 2))
    assert limits.of_all_reduce(result, all_reduce(2, 10**9, 0.1, nodes=2)) is None, "the network's rate"
    assert limits.of_copy(result, copied(("host", "host"), 10**9, 0.1)) is None
    assert limits.of_copy(result, copied(("host", 0), 10**9, 0.1)) is None, "no link was seen"
    assert limits.of_products(on_gpus([]), "float32") is None


def test_figures_draw_the_rates_that_are_judged(on_gpus: OnGpus) -> None:
    """175 GB/s of bus bandwidth, as above, and 50 GB/s from the host."""
    spec = {"bytes": [10**9], "size": 1, "products": 1}
    reduced = on_gpus(box(H100, 8), all_reduce(8, 10**9, 0.010), experiment="allreduce", spec=spec)
    copy = copied(("host", 0), 10**9, 0.02)
    copy = replace(copy, case={**copy.case, "call": "blocking"})
    moved = on_gpus(box(H100, 8), copy, experiment="copy_cost", spec=spec)
    for figure, gbs in ((allreduce.plot([reduced]), 175.0), (copy_cost.plot([moved]), 50.0)):
        (rate,) = {shown.point.value for shown in points.of(figure) if shown.unit == "GB/s"}
        assert rate == pytest.approx(gbs)


def test_a_link_counts_as_it_was_under_load_and_not_at_rest(on_gpus: OnGpus) -> None:
    """An idle card lowers its generation: of all readings the highest one is that of the load."""
    record = copied(("host", 0), 10**9, 0.04, (5, 16))
    idle = copied(("host", 0), 10**9, 0.04, (1, 16))
    both = replace(record, telemetry=[*idle.telemetry, *record.telemetry, *idle.telemetry])
    limit = limits.of_copy(on_gpus(box(H100, 1), both), both)
    assert limit is not None
    assert (limit.name, limit.advice) == ("PCIe 5 x16", "")


@pytest.mark.parametrize(
    ("generation", "width", "told"),
    [
        (5, 16, ""),
        (5, 8, "the card can do x16 but runs at x8: reseat it, or check its slot"),
        (3, 16, "the card can do PCIe 5 but runs at 3: check the slot, the riser and the BIOS"),
    ],
)
def test_a_slower_link_than_the_card_can_do_has_its_advice(
    on_gpus: OnGpus, generation: int, width: int, told: str
) -> None:
    record = copied(("host", 0), 10**9, 0.04, (generation, width))
    limit = limits.of_copy(on_gpus(box(H100, 1), record), record)
    assert limit is not None
    assert limit.advice == told
