"""Experiments on ranks, with a small network in the place of ResNet-50: what is proven, and the cases recorded."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from scalecard import experiments
from scalecard.distributed import Layout
from scalecard.hardware.machine import Machine, probe
from scalecard.measuring.more_ranks import Proofs, proven_on_more_ranks
from scalecard.records.record import Record
from support.blocks import smoke_block
from support.small_network import replace_resnet50

pytestmark = pytest.mark.usefixtures("forked_ranks", "few_images", "small")


# The second split size is the whole batch. The small network moves little at ResNet-50's learning rate.
SPLIT = {"batch_size": 4, "split_sizes": [2, 4], "balanced_sizes": [2], "check_steps": 2, "lr": 0.1}


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """In this process; the ranks' server does so too."""
    with pytest.MonkeyPatch.context() as patch:
        replace_resnet50(patch.setattr)
        yield


@pytest.fixture(scope="module")
def pipelines(forked_ranks: None, small: None) -> list[Record]:
    return run("pipeline", probe(), 2, **SPLIT)


@pytest.fixture(scope="module")
def of_ddp(forked_ranks: None) -> list[Record]:
    return run("ddp", probe(), 2)


def run(name: str, machine: Machine, num_devices: int, **changes: Any) -> list[Record]:
    """The small network moves little at ResNet-50's learning rate."""
    spec = experiments.build(name, smoke_block(name, **(changes or {"check_steps": 2, "lr": 0.1})))
    return list(experiments.load(name).run(spec, replace(machine, num_devices=num_devices, cores=num_devices)))


def proven_on(record: Record) -> set[int]:
    """The numbers of ranks that the checks' names say."""
    return {int(number) for check in record.checks for number in re.findall(r"(\d+) ranks?\b", check.name)}


def _counts(record: Record) -> dict[str, float]:
    return {count.name: count.counted for count in record.work}


def test_hybrid_ranks_average_to_the_single_devices_parameters(machine: Machine) -> None:
    records = run("hybrid", machine, num_devices=4)
    averaged, wrapped = (next(r for r in records if r.case["strategy"] == name) for name in ("hybrid", "DDP"))
    for record in (averaged, wrapped):
        assert (record.case["ranks"], record.case["devices"]) == (2, 4)
        assert {check.dtype for check in record.checks} == {"float64", "float32"}
        assert proven_on(record) == {2, 3}
    assert _counts(averaged)["all-reduces"] == 2
    assert _counts(wrapped)["all-reduced bytes"] == _counts(averaged)["all-reduced bytes"] > 0
    assert wrapped.telemetry[0].rounds_id == averaged.telemetry[0].rounds_id
    assert {r.case["ranks"] for r in records if r.case["strategy"] == "model parallel"} == {1, 2}


def test_every_pipeline_is_proven_before_it_is_timed(pipelines: list[Record]) -> None:
    records = [record for record in pipelines if record.metric == "step_time"]
    measured = [record for record in records if record.status == "ok"]
    ours = {"single device", "model parallel", "textbook", "gpipe", "1f1b"}
    assert {record.case["strategy"] for record in measured} == {*ours, "torch gpipe", "torch 1f1b"}
    for record in measured:
        assert {check.dtype for check in record.checks} == {"float64", "float32"}, record.case
        forwards = _counts(record)["forwards"]
        whole = record.case["strategy"] in ("single device", "model parallel")
        assert forwards == (1 if whole else 4 // int(str(record.case["split_size"]))), record.case
    beside = [record for record in measured if record.case.get("beside")]
    assert {record.case["beside"] for record in beside} == {"torch gpipe", "torch 1f1b"}
    for record in beside:
        same = {axis: record.case[axis] for axis in ("split_size", "batch_size")}
        (theirs,) = [r for r in measured if r.matches(strategy=record.case["beside"], **same)]
        assert theirs.telemetry[0].rounds_id == record.telemetry[0].rounds_id, "the same rounds"
        assert _counts(record)["updates"] == 1, "the first rank did it"


def test_split_sizes_that_the_library_cannot_run_are_skipped_with_a_reason(pipelines: list[Record]) -> None:
    skipped = [record for record in pipelines if record.status == "skipped"]
    cases = {(r.case["strategy"], r.case["split_size"]) for r in skipped if r.metric == "step_time"}
    assert cases == {("torch 1f1b", 4)}, "one micro-batch for two stages"


def test_ddp_times_every_option_beside_the_default_and_proves_it(of_ddp: list[Record]) -> None:
    steps = [record for record in of_ddp if record.metric == "step_time"]
    assert [r.case["strategy"] for r in of_ddp if r.status != "ok"] == ["DataParallel"], "it does nothing on a CPU"
    steps = [record for record in steps if record.status == "ok"]
    assert all(record.checks for record in steps)
    scaling = {(r.case["scaling"], r.case["devices"]) for r in steps if "scaling" in r.case}
    assert scaling == {("strong", 1), ("plain", 1), ("strong", 2), ("weak", 2)}
    on_two = [record for record in steps if "scaling" in record.case and record.case["devices"] == 2]
    samples = {(r.case["scaling"], r.case["batch_size"]): _counts(r)["samples"] for r in on_two}
    assert samples == {("strong", 4): 2, ("weak", 8): 4}, "of each of two ranks"
    options = [record for record in steps if "option" in record.case]
    assert {"default", "no_sync", "all-reduce alone", "bucket 1 MiB"} < {record.case["option"] for record in options}
    assert len({record.telemetry[0].rounds_id for record in options}) == 1
    for record in options:
        assert 3 in proven_on(record) or record.case["option"] in ("no_sync", "all-reduce alone"), record.case


def test_the_hand_written_way_takes_turns_with_ddp_and_trains_the_same_batch(of_ddp: list[Record]) -> None:
    """LeNet has 129,068 parameters of 4 bytes, which go to the first device and back; a batch of 4 is 2 for each."""
    ddp, by_hand = ([r for r in of_ddp if r.matches(strategy=way)] for way in ("DDP", "by hand"))
    assert [(r.case["devices"], r.case["batch_size"]) for r in (*ddp, *by_hand)] == [(2, 4), (2, 4)], "not on one rank"
    assert by_hand[0].telemetry[0].rounds_id == ddp[0].telemetry[0].rounds_id
    assert {(check.dtype, "3 devices" in check.name) for check in by_hand[0].checks} == {
        ("float64", True),
        ("float64", False),
        ("float32", False),
    }
    both, alone = _counts(by_hand[0]), _counts(ddp[0])
    assert both["received bytes"] == 2 * alone["all-reduced bytes"] == 2 * 4 * 129_068
    assert both["FLOPs"] == 2 * alone["FLOPs"], "of both devices, not of one rank"
    assert both["updates"] == alone["updates"] == 1


def test_the_librarys_all_reduce_is_proven_on_more_ranks_than_are_timed(machine: Machine) -> None:
    records = [
        record
        for record in run("allreduce", machine, 2, bytes=[4096])
        if record.case["algorithm"] == "torch.distributed"
    ]
    assert records
    assert {number for record in records for number in proven_on(record)} == {2, 3}


def test_gpus_and_more_ranks_need_no_further_proof(machine: Machine) -> None:
    for timed, one in [
        ([Layout(1)], machine),
        ([Layout(2), Layout(4)], machine),
        ([Layout(2)], replace(machine, kind="cuda")),
    ]:
        assert proven_on_more_ranks(_never, timed=timed, machine=one) == {}


def test_a_node_that_takes_no_part_in_the_proof_goes_on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalecard.measuring.more_ranks.launch", lambda *args, **options: [])
    assert proven_on_more_ranks(_never, timed=[Layout(2, nodes=2)], machine=machine) == {}


def _never(*_args: object) -> Proofs:
    raise AssertionError("launched")
