"""What NCCL's log says of the way it sends, with lines of real logs, and that only one start writes it."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scalecard.distributed import Layout
from scalecard.distributed import launch as ranks
from scalecard.hardware import vendors
from scalecard.hardware.machine import Machine
from scalecard.hardware.vendors import nvidia
from scalecard.hardware.vendors.nvidia import nccl

DIRECT = """\
gpu01:120:156 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB ib0:192.168.11.1<0>
gpu01:120:156 [0] NCCL INFO Using network IB
gpu01:120:156 [0] NCCL INFO Channel 00/02 :    0   1
gpu01:120:156 [0] NCCL INFO Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/5/GDRDMA
gpu01:120:156 [0] NCCL INFO Channel 01/0 : 0[0] -> 12[4] [send] via NET/IB/2/GDRDMA
gpu01:120:156 [0] NCCL INFO Channel 00/0 : 7[7] -> 6[6] via P2P/direct pointer/read
gpu01:120:156 [0] NCCL INFO Channel 02/0 : 8[0] -> 15[7] via P2P/IPC/read
gpu01:120:156 [0] NCCL INFO Connected all rings
"""
SOCKETS = """\
node2:926:1151 [7] NCCL INFO NET/IB : No device found.
node2:926:1151 [7] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3
node2:926:1151 [7] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct
"""
STAGED = "node2:926:1151 [7] NCCL INFO Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3\n"


SWITCHED = """\
gpu01:120:156 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
gpu01:120:156 [0] NCCL INFO Channel 00/0 : 7[7] -> 6[6] via P2P/CUMEM
gpu01:120:156 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels
"""


@pytest.mark.parametrize(
    ("log", "paths", "words"),
    [
        (SWITCHED, {"NVLS": 16, "P2P": 1}, []),
        (SWITCHED.replace("is available", "is not available"), {"P2P": 1}, []),
        (DIRECT, {"NET/IB/GDRDMA": 2, "P2P": 2}, []),
        (SOCKETS, {"NET/Socket": 1, "SHM": 1}, ["TCP sockets", "cannot reach"]),
        (STAGED, {"NET/IB": 1}, ["without GPUDirect"]),
        ("", {}, []),
    ],
)
def test_channels_are_counted_by_their_path(log: str, paths: dict[str, int], words: list[str]) -> None:
    assert nccl.paths_in(log) == paths
    found = nccl.remarks(paths)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_ranks_are_told_to_log_in_this_start_only(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.delenv("NCCL_DEBUG_FILE", raising=False)
    logs = {100: DIRECT, 200: SOCKETS}

    def launch(start: Any, folder: str, *, layout: Layout, machine: Machine) -> list[dict[str, int]]:
        """In this process, as the first of two ranks."""
        assert os.environ["NCCL_DEBUG"] == "INFO"
        for pid, log in logs.items():
            Path(os.environ["NCCL_DEBUG_FILE"].replace("%p", str(pid))).write_text(log)
        monkeypatch.setattr(os, "getpid", lambda: 100)
        ctx = SimpleNamespace(
            device=torch.device("cpu"),
            synchronize=lambda: None,
            all_gather=lambda value: [value, nccl.paths_in(Path(folder, "200").read_text())],
        )
        return [start(ctx, folder)]

    monkeypatch.setattr(vendors, "here", lambda: nvidia)
    monkeypatch.setattr(ranks, "launch", launch)
    monkeypatch.setattr(ranks.dist, "all_reduce", lambda tensor: None)
    assert ranks.transport_paths(machine, Layout(2)) == {"NET/IB/GDRDMA": 2, "NET/Socket": 1, "P2P": 2, "SHM": 1}
    assert os.environ["NCCL_DEBUG"] == "WARN"
    assert "NCCL_DEBUG_FILE" not in os.environ
