"""A trace is written whole, of every thread, by the leading rank; those of an earlier run are removed."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring import tracing
from scalecard.measuring.shared_decisions import ALONE
from scalecard.measuring.timer import Bench


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.FOLDER, "")


def product() -> None:
    torch.ones(4, 4) @ torch.ones(4, 4)


def names(path: Path) -> set[Any]:
    return {event.get("name") for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]}


def test_what_a_worker_computes_is_in_the_trace(tmp_path: Path, machine: Machine) -> None:
    tracing.begin_traces(tmp_path / "traces")
    with open_devices(machine, 1) as devices:
        tracing.trace("gpt, our 1f1b/2", lambda: devices[0].submit(product), Bench(devices))
    (path,) = (tmp_path / "traces").iterdir()
    assert path.name == "gpt%2C+our+1f1b%2F2.json.gz"
    assert "aten::mm" in names(path)


def test_a_rank_that_does_not_lead_works_and_writes_nothing(tmp_path: Path) -> None:
    tracing.begin_traces(tmp_path)
    worked = []
    tracing.trace("x", lambda: worked.append(1), Bench([], SimpleNamespace(leads=False, barrier=ALONE.barrier)))  # type: ignore[arg-type]
    assert worked == [1]
    assert not tmp_path.exists(), "removed by begin, and made by nobody"


def test_traces_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "old.json.gz").write_text("")
    tracing.begin_traces(tmp_path / "traces")
    assert not (tmp_path / "traces").exists()


def test_a_trace_that_cannot_be_written_is_said_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    tracing.begin_traces(tmp_path / "file" / "traces")
    tracing.trace("x", product, Bench([]))
    assert "x.json.gz was not written" in capsys.readouterr().out


def test_a_step_that_the_profiler_leaves_no_memory_for_is_said_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_large() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    tracing.begin_traces(tmp_path)
    tracing.trace("x", too_large, Bench([]))
    assert "x.json.gz was not written: CUDA out of memory." in capsys.readouterr().out
    tracing.trace("y", product, Bench([]))
    assert [path.name for path in tmp_path.iterdir()] == ["y.json.gz"], "the profiler is free again"
