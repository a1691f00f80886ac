"""The first screen: which machine, how it scales, what to use, and what became slower with more devices."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from fixtures import platforms
from scalecard.analysis import provenance
from scalecard.analysis.health.verdict import Kind
from scalecard.analysis.limits import Judgement
from scalecard.analysis.platforms import nickname
from scalecard.analysis.slowdowns import slowdowns
from scalecard.records.record import Record, Result
from scalecard.report import advice_text, downloads, first_screen
from scalecard.report.section import Section
from support.builders import out_of_memory, timed
from support.every_experiment import every_result
from support.health_boxes import Box
from support.simulated_clusters import simulated

Make = Callable[..., Result]


def screen(*results: Result) -> first_screen.FirstScreen:
    return first_screen.of([Section.of(result) for result in results], [])


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (["NVIDIA H100 80GB HBM3"] * 8, "8 x H100 80GB"),
        (["NVIDIA A100-SXM4-40GB"] * 4, "4 x A100-SXM4-40GB"),
        (["NVIDIA GeForce RTX 4090"], "1 x RTX 4090"),
        ([], "AMD EPYC 9R14, 2 cores (emulated)"),
    ],
)
def test_a_machine_has_a_name_that_one_would_say(make_result: Make, gpus: list[str], expected: str) -> None:
    result = make_result([])
    facts = {"gpus": gpus, "num_devices": len(gpus) or 2, "cpu": "AMD EPYC 9R14", "cores": 2}
    machine = {**result.environment["machine"], **facts}
    assert nickname([replace(result, environment={**result.environment, "machine": machine})]) == expected


def test_several_nodes_are_said() -> None:
    assert nickname(list(simulated(8, nodes=2).values())).startswith("2 nodes of 8 x ")


def test_of_gpus_scaling_advice_and_verdicts_are_said() -> None:
    results = simulated(8, seed=1)
    found = screen(results["strategies"], results["health"])
    (line,) = found.scaling
    assert (line.workload, line.devices) == ("gpt, plain SGD in float32", "8 GPUs")
    assert line.same_batch == "6.76x ± 0.04, 84 % of ideal (FSDP gradients)"
    assert line.growing_batch == "99 % of ideal (DDP)"
    assert line.use == "FSDP gradients on 8 devices"
    assert "<svg" in line.line
    assert found.verdict == "Healthy: all 428 checks passed"
    assert {tile.part for tile in found.tiles} >= {"compute", "GPU links", "collectives"}
    assert not found.trial


@pytest.mark.parametrize(
    ("box", "verdict", "alerts"),
    [
        (Box(switched=18), "Healthy: all 434 checks passed", 0),
        (Box(switched=18, slots={1: (5, 8)}), "1 fault found; 429 of 434 checks passed", 1),
    ],
)
def test_the_verdict_counts_faults_and_checks(box: Box, verdict: str, alerts: int) -> None:
    found = screen(box.result())
    assert found.verdict == verdict
    assert len(found.alerts) == alerts


def test_what_is_low_elsewhere_is_a_line_beside_a_fault_and_else_the_verdict_itself() -> None:
    copies = next(result for result in every_result("box", gpus=2) if result.experiment == "copy_cost")
    low = Judgement(what="Copies", value="1 GB/s", expectation="25 GB/s is normal", verdict="low")
    section = replace(Section.of(copies), judgements=[low])
    alone = first_screen.of([section], [])
    assert (alone.verdict, alone.alerts, alone.low_elsewhere) == ("1 value less than normal", [low], [])
    beside = first_screen.of([Section.of(Box(switched=18, slots={1: (5, 8)}).result()), section], [])
    assert beside.verdict.startswith("1 fault found")
    assert beside.low_elsewhere == [("copy_cost", [low])]
    healthy = first_screen.of([Section.of(Box(switched=18).result()), section], [])
    assert healthy.verdict == "1 value less than normal, though all 434 checks passed"


def test_what_needs_several_devices_is_said_though_one_device_was_not_timed(make_result: Make) -> None:
    case: dict[str, Any] = {"workload": "gpt", "scaling": "strong", "batch_size": 8, "unit": "samples", "units": 8}
    records = [
        out_of_memory({**case, "strategy": "single device", "devices": 1}, "out", metric="step_time"),
        timed([0.5] * 7, metric="step_time", strategy="FSDP gradients", devices=4, **case),
    ]
    (line,) = screen(make_result(records, experiment="strategies", environment=on_gpus(make_result))).scaling
    assert (line.same_batch, line.use) == ("", "FSDP gradients on 4 devices")


def test_one_device_that_will_do_is_what_to_use(make_result: Make) -> None:
    """Several may be faster, but not surely."""
    case: dict[str, Any] = {"workload": "gpt", "scaling": "strong", "batch_size": 8, "unit": "samples", "units": 8}
    noisy = [0.7, 0.9, 1.0, 1.1, 1.3, 0.8, 1.2]  # of four devices the other way round, a little faster
    records = [
        timed(noisy, metric="step_time", strategy="single device", devices=1, **case),
        timed([0.95 * each for each in reversed(noisy)], metric="step_time", strategy="DDP", devices=4, **case),
    ]
    result = make_result(records, experiment="strategies", environment=on_gpus(make_result))
    (line,) = screen(result).scaling
    assert line.use == "one device"
    assert "one device will do" in advice_text.sentences(result, "gpt")[0].text


def on_gpus(make_result: Make) -> dict[str, Any]:
    return {**make_result([]).environment, "emulated": False}


def test_without_gpus_it_is_a_trial_without_tiles_and_advice() -> None:
    found = screen(*(result for result in every_result("box") if result.experiment in ("strategies", "health")))
    assert found.trial
    assert found.tiles == []
    assert found.verdict == ""
    assert all(line.devices.endswith(" CPU ranks") and line.use == "" for line in found.scaling)


def test_how_far_to_trust_it_is_said_without_the_warnings_that_stand_by_themselves() -> None:
    (timings,) = (result for result in every_result("box", gpus=2, processes=3) if result.experiment == "async_timing")
    proofs = sum(len(record.checks) for record in timings.records)
    proven, throttled = screen(timings).trust
    assert proven == f"All {proofs} proofs passed before timing."
    assert throttled.startswith("No throttling in ")
    cases, *_, processes = provenance.reasons_to_trust([timings])
    assert cases.startswith(f"Cases: {timings.count('ok')} measured")
    assert processes == "3 processes per case."


def epochs(**seconds: float) -> list[Record]:
    return [timed([value] * 7, metric="epoch_time", devices=int(count[1:])) for count, value in seconds.items()]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            epochs(n1=1.0, n2=0.6, n4=1.3),
            ["Data parallelism from scratch on 4 devices (0.77x) is slower than one device"],
        ),
        (epochs(n1=1.0, n2=0.6, n4=0.5), []),
        (
            epochs(n1=1.0, n2=0.5, n4=0.8),
            ["Data parallelism from scratch on 4 devices (1.25x) is slower than on 2 (2.00x)"],
        ),
        (epochs(n1=1.0), []),
        (epochs(n2=1.0, n4=2.0), []),
    ],
)
def test_what_is_slower_on_the_most_devices_than_on_fewer_is_said(
    make_result: Make, made: list[Record], expected: list[str]
) -> None:
    assert list(slowdowns({"dp_scratch": make_result(made, experiment="dp_scratch")})) == expected


def test_of_strategies_those_that_lose_are_named_together(make_result: Make) -> None:
    def step(strategy: str, devices: int, seconds: float) -> Record:
        case: dict[str, Any] = {"workload": "gpt", "strategy": strategy, "devices": devices, "scaling": "strong"}
        case |= {"batch_size": 8, "unit": "samples", "units": 8}
        return timed([seconds] * 7, metric="step_time", **case)

    records = [
        step("single device", 1, 1.0),
        step("DDP", 2, 0.6),
        step("DDP", 4, 0.4),
        step("tensor parallel", 2, 2.0),
        step("tensor parallel", 4, 2.5),
        step("FSDP parameters", 4, 1.25),
        step("FSDP offload", 4, 9.0),  # that saves memory, which nobody takes for a fault
    ]
    (said,) = slowdowns({"strategies": make_result(records, experiment="strategies")})
    assert said == "gpt: on 4 devices tensor parallel (0.40x), FSDP parameters (0.80x) are slower than one device"
    more = [*records, step("torch gpipe", 4, 5.0)]
    (said,) = slowdowns({"strategies": make_result(more, experiment="strategies")})
    most = "most of all torch gpipe (0.20x), tensor parallel (0.40x)"
    assert said == f"gpt: on 4 devices 3 strategies are slower than one device, {most}"


def test_the_summary_and_the_citation_can_be_copied_and_the_table_is_in_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "exports" / "box"
    folder.mkdir(parents=True)
    for name in ("results.csv", "results.parquet", "citation.bib", "summary.md"):
        (folder / name).write_text(f"of {name}, 5 %")
    summary, citation, table = downloads.embedded(sorted(folder.iterdir()))
    assert (summary.name, summary.label, summary.text) == ("summary.md", "Copy summary", "of summary.md, 5 %")
    assert (citation.name, citation.label, citation.text) == ("citation.bib", "Cite", "of citation.bib, 5 %")
    assert (table.name, table.label, table.text) == ("results.csv.gz", "CSV", "")
    assert urlopen(summary.href).read() == b"of summary.md, 5 %"
    assert gzip.decompress(urlopen(table.href).read()) == b"of results.csv, 5 %"
    assert downloads.embedded([]) == []


def test_what_a_fault_of_health_explains_is_no_warning_of_its_own() -> None:
    """GPU 5's links run at half their rate: health says so, and copies from and to it are listed with that."""
    results = {r.experiment: r for r in platforms.results("fixture-8xh100-bad-link")}
    sections = [Section.of(results[name]) for name in ("health", "copy_cost", "allreduce")]
    assert [sum(each.is_trouble for each in section.judgements) > 0 for section in sections] == [True, True, True]
    found = first_screen.of(sections, [])
    assert found.verdict.startswith("1 fault found")
    assert (len(found.alerts), found.low_elsewhere) == (1, [])
    low = sum(each.is_trouble for each in sections[1].judgements)
    assert f"also in All-reduce (3), Copies ({low})" in found.alerts[0].text


def test_what_no_fault_explains_stays_a_line_of_its_own() -> None:
    """A narrow slot of GPU 3 slows its copies from the host, and not the products of GPU 0."""
    box = Section.of(Box(switched=18, slots={3: (5, 4)}).result())
    copies = next(result for result in every_result("box", gpus=2) if result.experiment == "copy_cost")
    slow = Judgement(what="a", value="1", expectation="2", verdict="low", kind=Kind.HOST_LINK, devices=(3,))
    other = replace(slow, what="b", kind=Kind.COMPUTE, devices=(0,))
    found = first_screen.of([box, replace(Section.of(copies), judgements=[slow, other])], [])
    assert "also in Copies (1)" in found.alerts[0].text
    assert found.low_elsewhere == [("copy_cost", [other])]
