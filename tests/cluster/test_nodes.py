"""Ranks on two hosts, which are network namespaces with a cable between them: rendezvous, interface, and what is said
where a host never comes or its cable is pulled."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from scalecard.distributed import Layout, nodes
from scalecard.distributed.context import RankContext
from scalecard.distributed.launch import launch
from scalecard.distributed.nodes import RankLost
from scalecard.hardware.machine import probe
from support.namespaces import ADDRESSES, HOSTS, NEEDS, can_make_namespaces, on_host, two_hosts
from support.projects import ROOT

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not can_make_namespaces(), reason=NEEDS),
]


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    with two_hosts() as both:
        yield both


def start(index: int, work: str, out: Path, *, timeout: int = 60) -> subprocess.Popen[str]:
    """This file as the program of one host: it runs `work` on two ranks a host and writes what came of it."""
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'workflow' / 'src'}:{ROOT / 'tests'}",
        "SCALECARD_NODES": "2",
        "SCALECARD_NODE": str(index),
        "SCALECARD_RENDEZVOUS": f"{ADDRESSES[0]}:29400",
        "SCALECARD_TIMEOUT": str(timeout),
    }
    command = on_host(index, [sys.executable, __file__, work, str(out / f"{index}.json")])
    return subprocess.Popen(command, env=environment, text=True)


def on_each_rank(ctx: RankContext) -> list[list[object]]:
    value = torch.tensor([float(ctx.rank)])
    dist.all_reduce(value)
    where = [ctx.rank, os.environ["SCALECARD_NODE"], os.environ["GLOO_SOCKET_IFNAME"], value.item()]
    return ctx.all_gather(where)


def for_long(ctx: RankContext) -> list[list[object]]:
    for _ in range(600):
        dist.all_reduce(torch.zeros(1))
        Path(f"/tmp/scalecard-test-{os.environ['SCALECARD_NODE']}").touch()
        time.sleep(0.1)
    return []


def main() -> None:
    job, told = nodes.here(), []
    with nodes.keep_store(job):
        for _ in range(2):  # the second launch must not wait for what the first one found to be lost
            began = time.monotonic()
            try:
                returned = launch(globals()[sys.argv[1]], layout=Layout(4, 2), machine=probe())
                told.append({"returned": returned})
            except (RankLost, dist.DistError) as error:
                told.append({"lost": str(error), "seconds": time.monotonic() - began})
        Path(sys.argv[2]).write_text(json.dumps(told))
        if job.leads:
            time.sleep(2)  # the store stays until the other one has ended


def test_ranks_on_two_hosts_meet_over_the_interface_between_them(hosts: tuple[str, str], tmp_path: Path) -> None:
    both = [start(index, "on_each_rank", tmp_path) for index in (0, 1)]
    assert [process.wait(120) for process in both] == [0, 0]
    first, again = json.loads((tmp_path / "0.json").read_text())
    everyone = first["returned"][0]
    assert first["returned"] == [everyone, everyone], "what rank 0 returned, for each rank of this host"
    assert [rank for rank, *_ in everyone] == [0, 1, 2, 3]
    assert sorted(node for _, node, *_ in everyone) == ["0", "0", "1", "1"]
    assert {interface for *_, interface, _ in everyone} == {"wan0"}
    assert {total for *_, total in everyone} == {6.0}
    assert again["returned"]


def test_a_host_that_never_comes_is_named_and_not_waited_for_twice(hosts: tuple[str, str], tmp_path: Path) -> None:
    assert start(0, "on_each_rank", tmp_path, timeout=6).wait(90) == 0
    first, again = json.loads((tmp_path / "0.json").read_text())
    expected = "of 4 ranks on 2 nodes, none could start: node 1 never arrived (waited 19 s)"
    assert first["lost"] == again["lost"] == expected
    assert first["seconds"] < 45
    assert again["seconds"] < 2


def test_a_pulled_cable_ends_the_ranks_within_the_timeout(hosts: tuple[str, str], tmp_path: Path) -> None:
    marks = [Path(f"/tmp/scalecard-test-{index}") for index in (0, 1)]
    for mark in marks:
        mark.unlink(missing_ok=True)  # of a test run that was killed
    both = [start(index, "for_long", tmp_path, timeout=8) for index in (0, 1)]
    deadline = time.monotonic() + 90
    while not all(mark.exists() for mark in marks) and time.monotonic() < deadline:
        time.sleep(0.1)
    subprocess.run(["ip", "-netns", HOSTS[0], "link", "set", "wan0", "down"], check=True)
    pulled = time.monotonic()
    assert both[0].wait(120) == 0
    assert time.monotonic() - pulled < 90
    both[1].kill()
    both[1].wait()
    for mark in marks:
        mark.unlink()
    first, _ = json.loads((tmp_path / "0.json").read_text())
    assert "of 4 ranks on 2 nodes, ranks 2, 3 were lost with node 1" in first["lost"]


if __name__ == "__main__":
    main()
