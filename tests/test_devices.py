"""CPU workers, rank processes, the lock on the machine, and what names a platform."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from scalecard import host, ranks, runner
from scalecard import machine as machines
from scalecard.devices import device_counts, open_devices
from scalecard.machine import Machine
from scalecard.meeting import Layout, RankLost, RanksFailed
from scalecard.schema import Case, Record

SRC = Path(__file__).parents[1] / "workflow" / "src"


def test_cpu_workers_overlap_and_dispatch_does_not_wait(machine: Machine) -> None:
    with open_devices(machine, 2) as devices:
        start = time.perf_counter()
        for device in devices:
            device.submit(time.sleep, 0.3)
        enqueued = time.perf_counter() - start
        for device in devices:
            device.synchronize()
        assert enqueued < 0.1
        assert 0.3 <= time.perf_counter() - start < 0.55


def test_a_task_waits_for_the_tasks_in_its_arguments(machine: Machine) -> None:
    with open_devices(machine, 2) as (a, b):
        slow = a.submit(lambda: (time.sleep(0.1), torch.ones(3))[1])
        assert torch.equal(b.submit(torch.add, slow, slow).result(), torch.full((3,), 2.0))


def test_an_error_of_the_work_comes_out_at_synchronize(machine: Machine) -> None:
    with open_devices(machine, 1) as (device,):
        device.submit(torch.ones, -1)
        for _ in range(200):
            device.submit(int)
        with pytest.raises(RuntimeError, match="negative"):
            device.synchronize()


@pytest.mark.parametrize(("n", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_device_counts(n: int, counts: list[int]) -> None:
    assert device_counts(n) == counts


def rank_and_sum(ctx: ranks.RankContext, start: int) -> tuple[int, list[float], list[int]]:
    value = torch.tensor([float(start + ctx.rank)])
    dist.all_reduce(value)
    return ctx.rank, ctx.maximum([value.item(), ctx.rank]), ctx.everyone(ctx.rank * 10)


def second_fails(ctx: ranks.RankContext) -> None:
    if ctx.rank == 1:
        raise ValueError("on purpose")
    dist.barrier()


def test_ranks_return_and_agree(machine: Machine) -> None:
    returned = ranks.launch(rank_and_sum, 5, layout=Layout(2), machine=machine)
    assert returned == [(0, [11.0, 1.0], [0, 10]), (1, [11.0, 1.0], [0, 10])]


def test_the_rank_that_failed_first_is_named(machine: Machine) -> None:
    with pytest.raises(RanksFailed, match="rank 1 failed: ValueError: on purpose"):
        ranks.launch(second_fails, layout=Layout(2), machine=machine)


def second_is_killed(ctx: ranks.RankContext) -> list[Record]:
    if ctx.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    return []


def second_hangs(ctx: ranks.RankContext) -> list[Record]:
    if ctx.rank == 1:
        time.sleep(60)
    dist.barrier()
    return []


def test_a_killed_rank_is_a_failed_record_that_names_it(machine: Machine) -> None:
    case: Case = {"devices": 2}
    (record,) = ranks.measured(second_is_killed, layout=Layout(2), machine=machine, case=case, metric="step_time")
    assert (record.status, record.case, record.samples) == ("failed", case, [])
    assert "rank 1 was killed by signal 9" in record.note


def test_a_rank_that_does_not_answer_ends_the_others_within_the_timeout(machine: Machine) -> None:
    started = time.monotonic()
    with pytest.raises(RankLost, match=r"rank 0 failed: .*waits 3 s for the others"):
        ranks.launch(second_hangs, layout=Layout(2), machine=machine, timeout=timedelta(seconds=3))
    assert time.monotonic() - started < 45


def sleep_long(ctx: ranks.RankContext, pids: str) -> None:
    Path(pids, str(ctx.rank)).write_text(str(os.getpid()))
    time.sleep(120)


def test_ranks_die_with_a_killed_launcher(tmp_path: Path) -> None:
    code = (
        "from scalecard import machine, ranks; from test_devices import Layout, sleep_long;"
        f"ranks.launch(sleep_long, {str(tmp_path)!r}, layout=Layout(2), machine=machine.probe())"
    )
    environment = os.environ | {"PYTHONPATH": f"{SRC}:{Path(__file__).parent}"}
    launcher = subprocess.Popen([sys.executable, "-c", code], env=environment)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_second_measurement_waits_and_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LOCK", tmp_path / "lock")
    code = (
        f"from scalecard import host, runner; from pathlib import Path; host.LOCK = Path({str(tmp_path / 'lock')!r})\n"
        "with runner.machine_lock(): print('got it', flush=True)"
    )
    with runner.machine_lock():
        second = subprocess.Popen(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(SRC)}, stdout=subprocess.PIPE, text=True
        )
        assert second.stdout is not None
        assert f"waiting for process {os.getpid()}" in second.stdout.readline()
    assert "got it" in second.stdout.read()
    assert second.wait(30) == 0


GPUS = Machine(
    kind="cuda",
    num_devices=2,
    gpus=["NVIDIA GeForce RTX 4090"] * 2,
    gpu_uuid_hashes=["a", "b"],
    driver="570.1",
    cpu="AMD EPYC 7R13 Processor",
    cores=96,
    software="abc",
)


def test_the_slug_follows_hardware_driver_and_lock_and_nothing_else() -> None:
    assert GPUS.slug.startswith("rtx4090x2-")
    assert dataclasses.replace(GPUS, num_devices=1).slug == GPUS.slug
    changed = [{"driver": "580.1"}, {"gpu_uuid_hashes": ["a", "c"]}, {"software": "def"}]
    slugs = {dataclasses.replace(GPUS, **change).slug for change in changed}
    assert len({*slugs, GPUS.slug}) == 4
    assert dataclasses.replace(GPUS, gpus=[]).slug.startswith("epyc-96c-")


def test_probing_again_finds_the_same_machine() -> None:
    assert machines.probe() == machines.probe()


def test_the_environment_names_no_host_and_no_user(machine: Machine) -> None:
    text = str(machines.environment(machine))
    home = str(Path.home())
    assert os.uname().nodename not in text or len(os.uname().nodename) < 4
    assert home not in text
