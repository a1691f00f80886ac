"""What stands between NCCL and InfiniBand, on nodes that have it."""

import ctypes.util
import resource
from pathlib import Path

import pytest
from scalecard.hardware import network


@pytest.mark.parametrize(
    ("infiniband", "library", "locked", "said"),
    [
        (False, None, 2**16, []),
        (True, None, -1, ["libibverbs is not installed: NCCL uses TCP"]),
        (True, "libibverbs.so.1", -1, []),
        (True, "libibverbs.so.1", 2**16, ["RLIMIT_MEMLOCK is 0.0625 MiB", "set ulimit -l unlimited"]),
        (True, "libibverbs.so.1", 2**40, []),
    ],
    ids=["no InfiniBand", "no library", "unlimited", "a distribution's default", "a large limit"],
)
def test_what_keeps_nccl_from_infiniband_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, infiniband: bool, library: str | None, locked: int, said: list[str]
) -> None:
    monkeypatch.setattr(network, "VERBS", tmp_path if infiniband else tmp_path / "missing")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: library)
    monkeypatch.setattr(resource, "getrlimit", {resource.RLIMIT_MEMLOCK: (locked, -1)}.__getitem__)
    found = network.why_slow()
    assert len(found) == min(len(said), 1)
    assert all(words in found[0] for words in said)
