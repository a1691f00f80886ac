"""Ranks on this machine: what they return and agree on, which failure is told, and that nothing outlives a launch."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from scalecard.distributed import Layout
from scalecard.distributed import launch as launches
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch, launch_and_record
from scalecard.distributed.nodes import RankLost, RanksFailed
from scalecard.hardware.machine import Machine, probe
from scalecard.records.axes import Case
from scalecard.records.record import Reason, Record
from support.builders import timed
from support.projects import ROOT

TWO = Layout(2)


def sum_and_agree(ctx: RankContext, start: int) -> tuple[int, list[float], list[int]]:
    value = torch.tensor([float(start + ctx.rank)])
    dist.all_reduce(value)
    return ctx.rank, ctx.maximum([value.item(), ctx.rank]), ctx.all_gather(ctx.rank * 10)


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_return_and_agree(machine: Machine) -> None:
    returned = launch(sum_and_agree, 5, layout=TWO, machine=machine)
    assert returned == [(0, [11.0, 1.0], [0, 10]), (1, [11.0, 1.0], [0, 10])]


def leads_and_threads(ctx: RankContext) -> tuple[bool, int]:
    return ctx.leads, torch.get_num_threads()


@pytest.mark.usefixtures("forked_ranks")
def test_the_first_rank_leads_and_ranks_share_the_cores(machine: Machine) -> None:
    eight = replace(machine, cores=8, num_devices=2)
    assert launch(leads_and_threads, layout=TWO, machine=eight) == [(True, 4), (False, 4)]


def waited_for_the_second(ctx: RankContext) -> float:
    ctx.barrier()
    started = time.monotonic()
    if ctx.rank == 1:
        time.sleep(0.5)
    ctx.barrier()
    return time.monotonic() - started


@pytest.mark.usefixtures("forked_ranks")
def test_a_barrier_waits_for_every_rank(machine: Machine) -> None:
    assert min(launch(waited_for_the_second, layout=TWO, machine=machine)) > 0.4


def variable(ctx: RankContext) -> tuple[str | None, str]:
    return os.environ.get("SCALECARD_TRIED"), os.environ["RANK"]


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_have_the_launchers_present_variables_and_their_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that they are forked from was started before these were set."""
    for value in ("first", "second"):
        monkeypatch.setenv("SCALECARD_TRIED", value)
        assert launch(variable, layout=TWO, machine=machine) == [(value, "0"), (value, "1")]
    monkeypatch.delenv("SCALECARD_TRIED")
    assert launch(variable, layout=TWO, machine=machine) == [(None, "0"), (None, "1")]


def second_fails(ctx: RankContext) -> None:
    if ctx.rank == 1:
        raise ValueError("on purpose")
    dist.barrier()


@pytest.mark.usefixtures("forked_ranks")
def test_the_rank_that_failed_first_is_named(machine: Machine) -> None:
    with pytest.raises(RanksFailed, match="rank 1 failed: ValueError: on purpose") as error:
        launch(second_fails, layout=TWO, machine=machine)
    assert not isinstance(error.value, RankLost)


def second_is_killed(ctx: RankContext) -> list[Record]:
    if ctx.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    return []


@pytest.mark.usefixtures("forked_ranks")
def test_a_killed_rank_is_a_failed_record_of_each_case_that_names_it(machine: Machine) -> None:
    cases: list[Case] = [{"algorithm": "ring", "bytes": size} for size in (8, 16)]
    steps = [(case, "step_time") for case in cases]
    records = launch_and_record(second_is_killed, layout=TWO, machine=machine, cases=steps)
    assert [record.case for record in records] == cases
    for record in records:
        assert (record.status, record.metric, record.samples) == ("failed", "step_time", [])
        assert "rank 1 was killed by signal 9" in record.note


def second_crashes(ctx: RankContext) -> None:
    if ctx.rank == 1:
        ctypes.string_at(0)
    dist.barrier()


@pytest.mark.usefixtures("forked_ranks")
def test_a_rank_that_crashes_says_where(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RankLost, match=r"rank 1 was killed by signal 11, in string_at \(__init__.py, line \d+\)$"):
        launch(second_crashes, layout=TWO, machine=machine)
    assert "in second_crashes" in capfd.readouterr().err, "the whole stack, in the log"


def second_fails_at_the_second_size(ctx: RankContext, kill: bool) -> Iterator[Record]:
    for size in (8, 16, 32):
        if ctx.rank == 1 and size == 16:
            if kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("on purpose")
        dist.barrier()
        yield timed([1.0], metric="step_time", bytes=size)


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize(("kill", "reason"), [(False, Reason.ERROR), (True, Reason.LOST)])
def test_what_was_measured_before_a_rank_failed_is_kept(machine: Machine, kill: bool, reason: Reason) -> None:
    records = launch_and_record(
        second_fails_at_the_second_size,
        kill,
        layout=TWO,
        machine=machine,
        cases=[({"bytes": size}, "step_time") for size in (8, 16, 32)],
    )
    assert [(record.case["bytes"], record.status) for record in records] == [(8, "ok"), (16, "failed"), (32, "failed")]
    assert {record.reason for record in records[1:]} == {reason}


def test_of_cases_with_many_records_those_that_were_done_have_not_failed() -> None:
    """Records have more axes than the cases that are recorded if a rank fails: the last one begun is not done."""
    cases: list[Case] = [{"workload": "lenet"}, {"workload": "resnet18"}, {"workload": "resnet50"}]
    records = [timed([1.0], workload=name, scaling="strong") for name in ("lenet", "resnet18")]
    steps, epochs = [(case, "step_time") for case in cases], [(case, "epoch_time") for case in cases[:2]]
    records = [replace(record, metric="step_time") for record in records]
    assert launches._not_done(steps, []) == steps
    assert launches._not_done(steps, records) == steps[1:]
    records.append(timed([1.0], metric="step_time", workload="resnet50"))
    records.append(timed([1.0], metric="epoch_time", workload="lenet"))
    assert launches._not_done([*steps, *epochs], records) == epochs[1:], "all steps were done"


def second_hangs(ctx: RankContext) -> None:
    if ctx.rank == 1:
        time.sleep(60)
    dist.barrier()


def second_is_stopped(ctx: RankContext) -> None:
    if ctx.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.barrier()


def first_is_stopped(ctx: RankContext) -> None:
    if ctx.rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.barrier()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (second_hangs, r"rank 1 did not answer \(rank 0 failed: .*each waits 3 s"),
        (second_is_stopped, r"rank 1 did not answer: stopped by a signal \(rank 0 failed"),
        (first_is_stopped, r"rank 0 did not answer: stopped by a signal \(rank 1 failed"),
    ],
)
@pytest.mark.usefixtures("forked_ranks")
def test_a_silent_rank_is_named_within_the_timeout(
    machine: Machine, function: Callable[[RankContext], None], said: str
) -> None:
    started = time.monotonic()
    with pytest.raises(RankLost, match=said):
        launch(function, layout=TWO, machine=machine, timeout=timedelta(seconds=3))
    assert time.monotonic() - started < 20, "not the 30 s that the agent would give a stopped rank"


@pytest.mark.usefixtures("forked_ranks")
def test_a_launch_leaves_nothing_in_the_temporary_folder(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    launch(sum_and_agree, 5, layout=TWO, machine=machine)
    left = [path.name for path in tmp_path.iterdir()]
    assert [name for name in left if not name.startswith("pymp-")] == [], "pymp-: the fork server's"


def sleep_long(ctx: RankContext, pids: str) -> None:
    """As deaf to torch's own SIGINT as a rank in a collective."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Path(pids, str(ctx.rank)).write_text(str(os.getpid()))
    time.sleep(120)


def main() -> None:
    launch(sleep_long, sys.argv[1], layout=TWO, machine=probe())


def test_ranks_die_with_a_killed_launcher(tmp_path: Path) -> None:
    """This file is the launcher's program, whose ranks start as a measurement's do."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'workflow' / 'src'}:{ROOT / 'tests'}"}
    launcher = subprocess.Popen([sys.executable, __file__, str(tmp_path)], env=environment)
    deadline = time.monotonic() + 120
    while len(written := [path.read_text() for path in tmp_path.iterdir()]) < 2 or not all(written):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    pids = [int(text) for text in written]
    assert all(map(alive, pids))
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    main()
