"""Rates, peers, limits, loads and counters of `health`, against numbers that were worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest
from scalecard.analysis import limits
from scalecard.analysis.health import judge_state
from scalecard.analysis.health.alerts import alerts, verdicts
from scalecard.analysis.health.rates import rates
from scalecard.analysis.health.verdict import Kind, Place
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result, Telemetry
from support.builders import gpu_state, hardware_state, timed
from support.health_boxes import Box

GB = 1_000_000_000
H100 = Box(switched=18)


def result_of(*records: Record, box: Box = H100, **environment: Any) -> Result:
    """A box with only these records."""
    result = replace(box, adapters=0).result()
    return replace(result, records=list(records), environment={**result.environment, **environment})


def a_rate(case: Case, seconds: float, box: Box = H100) -> float:
    (rate,) = rates(result_of(timed([seconds] * 6, **case), box=box))
    return rate.value


# 2 n^3 operations a product; a copy within memory reads and writes each byte; nccl-tests, doc/PERFORMANCE.md:
# 1 GB in 10 ms on 8 ranks is an algorithm bandwidth of 100 GB/s, times 2 x 7/8 for an all-reduce, 7/8 for the three
# that move each byte once, and 1 for a broadcast.
HOST_LINK: Case = {"part": "host link", "device": 0, "at_once": True, "bytes": GB}
RATES = [
    ({"part": "compute", "device": 0, "at_once": False, "dtype": "float32", "size": 4000, "products": 50}, 0.5, 12.8),
    ({"part": "load", "device": 0, "dtype": "bfloat16", "size": 1000, "products": 1}, 0.001, 2.0),
    ({"part": "memory", "device": 0, "at_once": False, "access": "read", "bytes": GB}, 0.001, 1000.0),
    ({"part": "memory", "device": 0, "at_once": False, "access": "copy", "bytes": GB}, 0.001, 2000.0),
    ({**HOST_LINK, "direction": "to host", "memory": "pinned"}, 0.04, 25.0),
    ({"part": "device link", "source": 0, "target": 1, "at_once": False, "bytes": GB, "peer": True}, 0.004, 250.0),
    ({"part": "collective", "collective": "all_reduce", "devices": 8, "bytes": GB}, 0.010, 175.0),
    ({"part": "collective", "collective": "all_gather", "devices": 8, "bytes": GB}, 0.010, 87.5),
    ({"part": "collective", "collective": "reduce_scatter", "devices": 8, "bytes": GB}, 0.010, 87.5),
    ({"part": "collective", "collective": "all_to_all", "devices": 8, "bytes": GB}, 0.010, 87.5),
    ({"part": "collective", "collective": "broadcast", "devices": 8, "bytes": GB}, 0.010, 100.0),
    ({"part": "node pair", "node": 0, "other": 1, "devices": 16, "bytes": GB}, 0.050, 37.5),
    ({"part": "storage", "bytes": GB}, 0.5, 2.0),
    ({"part": "host memory", "numa_node": 0, "bytes": GB}, 0.1, 20.0),
]


@pytest.mark.parametrize(("case", "seconds", "expected"), RATES)
def test_rates_are_in_the_units_of_their_limits(case: Case, seconds: float, expected: float) -> None:
    assert a_rate(case, seconds) == pytest.approx(expected)


def odd(*values: float, scatter: float = 0.0, of: int = 6) -> list[int]:
    """Which devices are odd, if their memory is read at these rates, with samples up to `scatter` more or less."""
    case = {"part": "memory", "at_once": False, "access": "read", "bytes": GB}
    spread = [1 + scatter * (2 * i / (of - 1) - 1) for i in range(of)] if of > 1 else [1.0]
    records = [timed([1 / value * s for s in spread], device=i, **case) for i, value in enumerate(values)]
    return [place for place, rate in enumerate(rates(result_of(*records))) if rate.is_odd]


# The line is at 0.9 x 100 = 90 of the median.
def test_odd_is_what_is_a_tenth_slower_than_the_median_of_its_like() -> None:
    assert odd(100, 100, 89, 100) == [2]
    assert odd(100, 100, 91, 100) == []
    assert odd(100, 101, 99, 200) == [], "a fast one is not odd"
    assert odd(100, 50, 100, 50) == [1, 3], "the median is 75, and the line at 67.5"


def test_odd_is_only_what_lies_below_the_line_with_its_interval() -> None:
    """Six samples of 1/85 s, 5 % more or less: their interval is their range, and 85 / 0.95 = 89.5 or / 0.94 = 90.4."""
    assert odd(100, 100, 85, 100, scatter=0.05) == [2]
    assert odd(100, 100, 85, 100, scatter=0.06) == []
    assert odd(100, 100, 50, 100, of=2) == [], "two samples say nothing of their scatter"
    assert odd(100, 100, 50, 100, of=3) == [2], "of three their range is taken"


def test_of_two_the_slower_is_odd_only_if_a_tenth_is_sure() -> None:
    """Without scatter the line is at 0.9 of the faster; with 2 % it is at 0.9 x 100/1.02 = 88.2, and 87/0.98 = 88.8."""
    assert odd(100, 89) == [1]
    assert odd(91, 100) == []
    assert odd(100, 87, scatter=0.02) == []
    assert odd(100, 86, scatter=0.02) == [1], "86/0.98 = 87.8"
    assert odd(100) == []


CUBE = [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]]
BRIDGES = [[0, 12, 0, 0], [12, 0, 0, 0], [0, 0, 0, 12], [0, 0, 12, 0]]


def test_pairs_are_alike_by_the_links_that_they_have() -> None:
    cube = Box(gpu="Tesla V100-SXM2-16GB", count=4, links=CUBE).result()
    assert [limits.link_kind(cube, 0, other) for other in (1, 2, 3)] == ["NV1", "NV1", "NV2"]
    assert limits.link_matrix(cube)[0] == ["X", "NV1", "NV1", "NV2"]
    bridges = Box(gpu="NVIDIA A100 80GB PCIe", count=4, links=BRIDGES, level=50).result()
    assert limits.link_matrix(bridges)[2] == ["SYS", "SYS", "X", "NV12"]
    assert limits.link_kind(H100.result(), 3, 4) == "NV"
    assert limits.link_matrix(Box(count=1).result()) == []


@pytest.mark.parametrize(("level", "word"), [(10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS")])
def test_levels_have_the_words_of_nvidia_smi(level: int, word: str) -> None:
    assert limits.link_matrix(Box(gpu="NVIDIA L4", count=2, level=level).result()) == [["X", word], [word, "X"]]


def judged(box: Box, what: str) -> Any:
    return next(verdict for verdict in verdicts(box.result()) if verdict.what == what)


def test_a_pair_is_judged_by_its_own_links() -> None:
    """Of 4 x 25 = 100 GB/s 85 are normal, and 42.5 are not, although the median of its peers is 85."""
    links_of = [[4 * (a != b) for b in range(4)] for a in range(4)]
    box = Box(gpu="NVIDIA A100-SXM4-80GB", count=4, links=links_of, pairs={(1, 2): 0.5})
    fine, slow = judged(box, "GPU 0 to 3, 1 GiB, alone"), judged(box, "GPU 1 to 2, 1 GiB, alone")
    assert (fine.verdict, slow.verdict) == ("normal", "odd one out")
    assert (fine.share, slow.share) == (pytest.approx(0.85, rel=5e-3), pytest.approx(0.425, rel=5e-3))
    assert judged(box, "GPU 1 to 2, 4 KiB, alone").share is None, "a small copy costs latency"
    assert judged(box, "GPU 1 to 2, 1 GiB, all at once").share is None, "what all share has no limit of one"


def test_workers_have_no_limits_and_no_gpus_names() -> None:
    box = Box(count=2, emulated=True)
    assert {verdict.share for verdict in verdicts(box.result())} == {None}
    assert judged(box, "worker 1, bfloat16 products, alone").verdict == "normal"
    alone = verdicts(Box(count=1, emulated=True).result())
    memory = [verdict for verdict in alone if verdict.kind is Kind.MEMORY]
    assert {verdict.verdict for verdict in memory} == {"not judged"}
    assert {verdict.place for verdict in memory} == {(Place(device=0, worker=True),)}


# Ten calls a sample. The first three at 1 s a call are what it can; 1/0.95 = 1.0526, so 1.06 s is a fall by 5.7 %.
@pytest.mark.parametrize(
    ("samples", "fell_after", "at_the_end"),
    [
        ([1.0] * 20, None, 1.0),
        ([1.0] * 10 + [1.06] * 10, 90.0, 1 / 1.06),  # of five samples from the ninth on three are slow
        ([1.0] * 10 + [1.04] * 10, None, 1 / 1.04),
        ([1.0] * 10 + [2.0] * 2 + [1.0] * 8, None, 1.0),  # an interruption
        ([1.0] * 8 + [2.0] * 6 + [1.0] * 6, None, 1.0),  # it recovered
    ],
)
def test_a_load_slows_down_when_five_samples_are_slow_and_stay_so(
    samples: list[float], fell_after: float | None, at_the_end: float
) -> None:
    record = replace(timed(samples, part="load"), telemetry=[Telemetry(rounds_id="r", iterations=10)])
    course = judge_state.course(record)
    assert course.fell_after == (fell_after and pytest.approx(fell_after))
    assert course.at_the_end == pytest.approx(at_the_end)
    assert course.seconds == pytest.approx(10 * sum(samples))


def test_a_device_that_keeps_its_rate_is_not_slow_because_others_became_faster() -> None:
    """As on a busy machine: most begin at 1.1 times what they take in the end."""

    def loaded(record: Record) -> Record:
        slower = 1.0 if record.case["device"] == 0 else 1.1
        return replace(record, samples=[[slower * record.median] * 10 + [record.median] * 30])

    box = Box(switched=18).result()
    records = [loaded(record) if record.case.get("part") == "load" else record for record in box.records]
    assert alerts(box) == alerts(replace(box, records=records)) == []


def test_a_power_cap_slows_nobody_down_and_heat_does() -> None:
    for reasons, slowed in (
        ({"power cap": 1.0}, {}),
        ({"thermal slowdown (software)": 0.2}, {"thermal slowdown (software)": 0.2}),
        ({"hardware slowdown": 0.04}, {}),
    ):
        watched = Telemetry(rounds_id="r", state=hardware_state(gpu_state(), gpu_state(reasons=reasons)))
        record = replace(timed([1.0] * 6, part="load"), telemetry=[watched])
        assert judge_state.held_back(record, 1) == slowed
        assert judge_state.held_back(record, 0) == {}


@pytest.mark.parametrize(
    ("counter", "before", "after", "verdict"),
    [
        ("ECC corrected", 7, 7, "normal"),
        ("ECC corrected", 7, 8, "errors"),
        ("ECC uncorrected", 9, 2, "errors"),  # it was reset, and counted two since
        ("PCIe replays", 0, 8, "normal"),
        ("PCIe replays", 0, 9, "errors"),
        ("NVLink CRC errors", 0, 100, "normal"),
        ("NVLink CRC errors", 0, 101, "errors"),
        ("something new", 0, 5, "not judged"),
    ],
)
def test_counters_are_judged_by_how_much_they_grew(counter: str, before: int, after: int, verdict: str) -> None:
    case: Case = {"part": "counters", "device": 3, "counter": counter}
    counted = Record(case=case, metric="errors", unit="count", samples=[[before, after]])
    (found,) = judge_state.counters(result_of(counted))
    assert found.verdict == verdict
    assert found.what.startswith("GPU 3, ")


def test_links_that_are_down_and_cards_that_do_not_answer_are_told() -> None:
    box = H100.result()
    gpus = [{**gpu, "nvlinks": 16 if device == 5 else 18} for device, gpu in enumerate(box.environment["gpus"])]
    missing = {"gpus.6": "GPU is lost", "gpus.1.ecc": "Not Supported"}
    facts = {**box.environment, "gpus": gpus, "missing": missing}
    found = alerts(replace(box, environment=facts))
    assert [(alert.kind, alert.what) for alert in found] == [
        ("lost", "card 6 of the PCI bus"),
        ("NVLinks down", "GPU 5, NVLinks"),
    ]


def test_two_faults_are_two_alerts_the_worse_one_first() -> None:
    box = Box(switched=18, speed={3: 0.6}, slots={3: (5, 8)}, lost={6}, pairs={(0, 1): 0.5})
    found = alerts(box.result())
    assert [alert.kind for alert in found] == ["lost", "slot width", "compute", "pair"]
    shown = [what for alert in found for what in alert.seen_in]
    assert len(shown) == len(set(shown)), "what a fault shows in is listed once"


def test_a_trouble_of_most_is_one_of_the_machine() -> None:
    """Five of eight GPUs in slots of generation 3."""
    (alert,) = alerts(Box(switched=18, slots=dict.fromkeys(range(5), (3, 16))).result())
    assert alert.what.startswith("5 of 8")
    assert alert.place == ()
    many = alerts(Box(switched=18, slots=dict.fromkeys(range(2), (3, 16))).result())
    assert [alert.place for alert in many] == [(Place(device=0),), (Place(device=1),)]


def test_a_card_that_came_with_less_is_not_in_trouble() -> None:
    """What card and slot can do is what the driver says, and a sheet may know of more."""
    box = Box(gpu="NVIDIA GeForce RTX 4090", count=2).result()
    gpus = [{**gpu, "pcie_gen_max": 3, "pcie_gen": 3} for gpu in box.environment["gpus"]]
    slow = Box(gpu="NVIDIA GeForce RTX 4090", count=2, slots={0: (3, 16), 1: (3, 16)}).result()
    assert alerts(replace(slow, environment={**slow.environment, "gpus": gpus})) == []


@pytest.mark.parametrize(("lanes", "found"), [(4, ["x4 instead of x16"]), (8, [])])
def test_a_slot_that_is_narrower_than_half_of_the_card_is_a_fault_though_it_can_do_no_more(
    lanes: int, found: list[str]
) -> None:
    """The driver's maximum is the slot's, and the sheet says 4 x16. Two cards often share the lanes of a desktop."""
    box = Box(gpu="NVIDIA GeForce RTX 4090", count=1, slots={0: (3, lanes)}).result()
    most = {"pcie_gen_max": 3, "pcie_gen": 3, "pcie_width_max": lanes}
    gpus = [{**gpu, **most} for gpu in box.environment["gpus"]]
    assert [each.value for each in alerts(replace(box, environment={**box.environment, "gpus": gpus}))] == found


def test_a_module_that_is_linked_to_its_cpu_has_no_slot() -> None:
    """Its driver may still tell of one lane of PCIe where sixteen could be."""
    box = Box(gpu="NVIDIA GH200 480GB", count=1).result()
    gpus = [{**gpu, "pcie_gen_max": 4, "pcie_width_max": 16} for gpu in box.environment["gpus"]]
    assert alerts(replace(box, environment={**box.environment, "gpus": gpus})) == []


# Of the 31.5 GB/s of PCIe 4: through the host's memory a quarter, 7.9, is normal for a copy, and a tenth, 3.15, for all
# GPUs together. 1 GB in 0.1 s is 10 GB/s.
@pytest.mark.parametrize(("peer", "gbs", "word"), [(False, 10, "normal"), (False, 7, "low"), (True, 10, "normal")])
def test_a_copy_between_gpus_over_pcie_has_one_threshold(peer: bool, gbs: float, word: str) -> None:
    box = Box(gpu="NVIDIA GeForce RTX 4090", count=2)
    (watched,) = {id(entry): entry for entry in box.result().records[0].telemetry}.values()
    case = {"part": "device link", "source": 0, "target": 1, "at_once": False, "bytes": GB, "peer": peer}
    record = replace(timed([1 / gbs] * 6, **case), telemetry=[watched])
    (found,) = (verdict for verdict in verdicts(result_of(record, box=box)) if verdict.kind == "PCIe pair")
    assert found.verdict == word


def test_threads_that_copy_pageable_memory_at_once_are_not_compared() -> None:
    case: Case = {"part": "host link", "direction": "to host", "memory": "pageable", "bytes": GB}
    for at_once, word in ((False, "odd one out"), (True, "not judged")):
        records = [timed([t] * 6, device=i, at_once=at_once, **case) for i, t in enumerate((0.1, 0.1, 0.1, 0.2))]
        (found,) = (v for v in verdicts(result_of(*records)) if v.what.startswith("GPU 3, to host"))
        assert found.verdict == word


def test_slow_collectives_without_another_cause_are_one_alert() -> None:
    """A third of NVLink's 80 % from four GPUs on: NCCL has chosen badly, and no link is slow."""
    box = Box(switched=18).result()
    records = [
        replace(r, samples=[[3 * s for s in r.samples[0]]])
        if r.case["part"] == "collective" and int(r.case["devices"] or 0) >= 4
        else r
        for r in box.records
    ]
    (alert,) = alerts(replace(box, records=records))
    assert (alert.kind, alert.verdict) == ("collective", "low")
    assert len(alert.seen_in) == 9, "five collectives on four and on eight GPUs"
    assert "NCCL_DEBUG" in alert.advice


def test_if_every_link_is_slow_no_gpu_is_named() -> None:
    """Each of six links has half of its 85 %: none is odd, all are low, and none of their ends is at fault."""
    links_of = [[4 * (a != b) for b in range(4)] for a in range(4)]
    slow = {(a, b): 0.5 for a in range(4) for b in range(a + 1, 4)}
    (alert,) = alerts(Box(gpu="NVIDIA A100-SXM4-80GB", count=4, links=links_of, pairs=slow).result())
    assert (alert.kind, alert.place, alert.verdict) == ("pair", (), "low")
    assert alert.what.startswith("6 of 6")


def test_a_pair_has_the_links_that_are_up_at_both_ends() -> None:
    result = Box(switched=18, count=2).result()
    pairs = [[None, 18], [17, None]]
    found = replace(result, environment={**result.environment, "nvlink_pairs": pairs})
    assert (limits.nvlinks(found, 0, 1), limits.nvlinks(found, 1, 0)) == (17, 17)
    unknown = replace(result, environment={**result.environment, "nvlink_pairs": [[None, 18], [None, None]]})
    assert limits.nvlinks(unknown, 0, 1) is None


@pytest.mark.parametrize(
    ("case", "amount", "limit", "why"),
    [
        (
            {"part": "memory", "device": 0, "access": "read"},
            10_000,
            3350,
            "so the vendor's figure in gpu_specs.yaml is",
        ),
        (
            {"part": "host link", "device": 0, "direction": "to host", "memory": "pinned"},
            413,
            63,
            "so the generation or",
        ),
        ({"part": "collective", "collective": "all_reduce", "devices": 2}, 480, 450, "(NVLink SHARP)"),
    ],
)
def test_more_than_the_limit_is_no_share_of_it_and_who_is_wrong_is_told(
    case: Case, amount: float, limit: float, why: str
) -> None:
    """413 GB/s over PCIe 5 x16 would be 655 % of it."""
    box = Box(count=2, switched=18)
    (watched,) = {id(entry): entry for entry in box.result().records[0].telemetry}.values()
    record = replace(timed([GB / (amount * 1e9)] * 12, **case, at_once=False, bytes=GB), telemetry=[watched])
    (found,) = (verdict for verdict in verdicts(result_of(record, box=box)) if " GB/s" in verdict.value)
    assert amount > 1.05 * limit
    assert (found.share, found.low, found.fine) == (None, False, True)
    assert found.value.startswith(f"{amount} GB/s, more than ")
    assert why in found.normal
