"""One run of one experiment: what it describes and records, and that it writes a whole result or none."""

import html
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scalecard import run
from scalecard.distributed import Layout, nodes
from scalecard.distributed.nodes import RanksFailed
from scalecard.hardware.environment import environment
from scalecard.hardware.machine import Machine, probe
from scalecard.measuring import stopping_rule
from scalecard.measuring.telemetry import Disturbed
from scalecard.records import files
from scalecard.records.files import TWICE, NotSaved, save
from scalecard.records.journal import Journal
from scalecard.records.record import Reason, Record, Result
from scalecard.report.record_table import telemetry_remarks as remarks
from scalecard.report.section import Section
from scalecard.workloads.datasets import DataWarning
from support.blocks import SHORTEST, block
from support.builders import timed
from support.fake_nvml import A100, GIB, GTX, H100, Board, FakeNvml, box

Install = Callable[..., FakeNvml]
Run = Callable[..., Result]
COPIES = {"size": 64, "products": 2, "bytes": [4096, 65536], "memory": ["pageable"]}
PRODUCTS = {"size": 64, "products": 2, "sizes": [16], "dtypes": ["float32"]}


@pytest.fixture
def report_of(scalecard: Callable[..., Any], tmp_path: Path) -> Callable[[Result], str]:
    """The words of the report on one result, as the command line writes it."""

    def write(result: Result) -> str:
        path, page = tmp_path / result.platform / f"{result.experiment}.json", tmp_path / "report.html"
        save(result, path)
        figure = tmp_path / "figures" / f"{result.experiment}.html"
        assert scalecard("plot", result.experiment, "--results", path, "--output", figure).status == 0
        assert scalecard("report", "--results", path, "--figures", figure.parent, "--output", page).status == 0
        return words(page.read_text())

    return write


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page)).split())


def test_only_the_devices_that_were_asked_for_are_described(install_gpus: Install, run_as_cuda: Run) -> None:
    install_gpus(box(H100, 8))
    result = run_as_cuda("async_timing", **PRODUCTS, devices=2)
    assert len(result.environment["gpus"]) == 2
    assert [len(row) for row in result.environment["topology"]] == [2, 2]
    assert result.environment["machine"]["num_devices"] == 2
    assert result.environment["machine"]["gpus"] == [H100.name] * 8, "the machine is what it is"
    assert {record.case["devices"] for record in result.records} == {1, 2}


def test_more_devices_than_gpus_are_refused(install_gpus: Install, run_as_cuda: Run, tmp_path: Path) -> None:
    install_gpus(box(H100, 8))
    with pytest.raises(ValueError, match=r"devices = 9: .*8"):
        run_as_cuda("async_timing", **PRODUCTS, devices=9)
    assert not (tmp_path / "results").exists()


def test_without_gpus_there_may_be_more_workers_than_were_found(install_gpus: Install, run_as_cuda: Run) -> None:
    install_gpus([])
    result = run_as_cuda("async_timing", **PRODUCTS, devices=5)
    assert (result.emulated, result.environment["machine"]["num_devices"]) == (True, 5)
    assert {record.case["devices"] for record in result.records} == {1, 2, 4, 5}


def test_what_disturbed_a_run_is_in_its_result_and_in_the_report(
    install_gpus: Install, run_as_cuda: Run, report_of: Callable[[Result], str]
) -> None:
    boards = box(H100, 8)
    boards[0].reasons, boards[0].width, boards[1].processes = 0x20, (8, 16), [(1, 2 * GIB)]
    install_gpus(boards)
    result = run_as_cuda("copy_cost", **COPIES)
    telemetry = [entry for record in result.records for entry in record.telemetry]
    again = [entry for entry in telemetry if entry.measured_again]
    assert all(entry.measured_again.startswith("thermal slowdown (software) on GPU 0") for entry in again)
    assert len({entry.rounds_id for entry in again}) == 1, "once it was in vain, no other group is measured twice"
    assert all(entry.state and entry.state.gpus[0].reasons for entry in telemetry)
    assert {entry.state.gpus[1].others_memory_bytes for entry in telemetry if entry.state} == {2 * GIB}
    (other,) = (text for text in result.warnings if "GPU 1" in text)
    assert "2048 MiB" in other
    judgements = Section.of(result).judgements
    assert any(judgement.verdict == "low" and "x16" in judgement.advice for judgement in judgements)
    told = report_of(result)
    assert other in told
    for record in result.records:
        assert all(remark in told for remark in remarks(record))
    assert all(judgement.value in told for judgement in judgements)


@pytest.mark.parametrize("board", [A100, GTX])
def test_other_gpus_go_the_whole_way_too(
    install_gpus: Install, run_as_cuda: Run, report_of: Callable[[Result], str], board: Board
) -> None:
    install_gpus(box(board, 2))
    result = run_as_cuda("async_timing", **PRODUCTS)
    assert [gpu["name"] for gpu in result.environment["gpus"]] == [board.name] * 2
    assert not result.emulated
    assert board.name in report_of(result)


def test_every_process_adds_its_samples(install_gpus: Install, run_as_cuda: Run) -> None:
    install_gpus(box(A100, 2))
    result = run_as_cuda("async_timing", **PRODUCTS, measure={**SHORTEST, "processes": 3})
    for record in result.records:
        assert [len(samples) for samples in record.samples] == [2, 2, 2]
        assert len({entry.rounds_id for entry in record.telemetry}) == 3


def test_what_cannot_be_measured_here_takes_one_process(
    install_gpus: Install, run_as_cuda: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    install_gpus(box(A100, 1))
    result = run_as_cuda("pipeline", devices=1, measure={**SHORTEST, "processes": 3})
    assert {(record.status, record.reason) for record in result.records} == {("skipped", Reason.UNSUPPORTED)}
    assert not [text for text in result.warnings if "fresh processes" in text]
    assert "process 2 of 3" not in capfd.readouterr().out


def test_a_budget_that_is_used_up_leaves_out_further_processes(
    install_gpus: Install, run_as_cuda: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use_up(*args: Any) -> run.Outcome:
        outcome = measure(*args)
        os.environ[stopping_rule.DEADLINE] = "0"
        return outcome

    install_gpus(box(A100, 2))
    measure = run.measure
    monkeypatch.setattr(run, "measure", use_up)
    result = run_as_cuda("async_timing", **PRODUCTS, measure={**SHORTEST, "processes": 3}, seconds=1000)
    assert {len(record.samples) for record in result.records} == {1}
    assert f"measured in 1 of 3 fresh processes: {stopping_rule.OVER}" in result.warnings


def test_the_values_that_were_used_are_kept(install_gpus: Install, run_as_cuda: Run) -> None:
    install_gpus(box(A100, 2))
    result = run_as_cuda("async_timing", **PRODUCTS, seed=7)
    assert {key: result.spec[key] for key in PRODUCTS} == PRODUCTS
    assert result.spec["seed"] == 7
    assert result.started <= result.finished


def test_a_clock_set_back_and_private_names_in_notes(
    install_gpus: Install, run_as_cuda: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes back by an hour while it is measured, and a case fails with an error that names this host."""
    lost = Record.failed({"devices": 2}, f"no answer from [10.1.2.3], see {Path.home()}/log", reason=Reason.LOST)
    times = iter([*[datetime(2026, 1, 1, 12, tzinfo=UTC)] * 2, datetime(2026, 1, 1, 11, tzinfo=UTC)])
    monkeypatch.setattr("scalecard.hardware.host._now", lambda: next(times))
    monkeypatch.setattr(run, "measure", lambda *args: run.Outcome([timed([1.0]), lost], ["cannot read /srv/images/x"]))
    install_gpus([])
    result = run_as_cuda("async_timing", **PRODUCTS)
    assert result.started <= result.finished
    assert any("clock was set back by 3600 s" in text for text in result.warnings)
    assert "cannot read [path]" in result.warnings
    assert result.records[1].note == "no answer from [[address]], see [path]"
    assert not result.failed_again
    assert TWICE not in result.warnings
    times = iter([datetime(2026, 1, 1, tzinfo=UTC)] * 3)
    result = run_as_cuda("async_timing", **PRODUCTS)
    assert result.failed_again, "it failed before as well"
    assert TWICE in result.warnings


def test_with_strict_a_disturbed_machine_leaves_no_result(
    install_gpus: Install, run_as_cuda: Run, tmp_path: Path
) -> None:
    boards = box(H100, 2)
    boards[0].utilisation = 40
    install_gpus(boards)
    with pytest.raises(Disturbed, match="GPU 0"):
        run_as_cuda("async_timing", **PRODUCTS, strict=True)
    assert not (tmp_path / "results").exists()


def test_our_own_warnings_are_kept_and_those_of_libraries_are_not(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def experiment(spec: Any, machine: Machine) -> Iterator[Record]:
        warnings.warn("no network", DataWarning, stacklevel=2)
        warnings.warn("deprecated", UserWarning, stacklevel=2)
        yield timed([1.0])

    monkeypatch.setattr(run.experiments, "load", lambda name: SimpleNamespace(run=experiment))
    monkeypatch.setattr(run.experiments, "build", lambda name, block: None)
    outcome = run.measure("any", "{}", machine, Journal(tmp_path / "records"))
    assert outcome.warnings == ["no network"]
    assert outcome.records[0].samples == [[1.0]]


def ends_early(spec: Any, machine: Machine) -> Iterator[Record]:
    yield timed([1.0], devices=1)
    yield timed([2.0], devices=2)
    raise TypeError("two layouts are equal")


def test_an_experiment_that_ends_early_leaves_what_it_has_and_how_it_ended(
    install_gpus: Install, run_as_cuda: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_gpus(box(A100, 2))
    monkeypatch.setattr(run.experiments.load("async_timing"), "run", ends_early)
    result = run_as_cuda("async_timing", **PRODUCTS, measure={**SHORTEST, "processes": 3})
    *measured, last = result.records
    assert [record.samples for record in measured] == [[[1.0]], [[2.0]]], "no further process"
    assert (last.case, last.status, last.reason, last.is_fault) == ({}, "failed", Reason.ERROR, True)
    assert last.note == "the experiment ended early: TypeError: two layouts are equal"
    assert "in ends_early" in capsys.readouterr().err, "where it was raised"


def measures_one_case_and_is_killed(name: str, block: str, machine: Machine, journal: Journal, kept: None) -> None:
    journal.keep([timed([1.0])])
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_what_it_had_measured(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "measure", measures_one_case_and_is_killed)
    outcome = run._outcome("ddp", "{}", machine, Journal(tmp_path / "records"))
    first, last = outcome.records
    assert (first.samples, outcome.ended_early) == ([[1.0]], True)
    assert (last.case, last.reason) == ({}, Reason.LOST)
    assert "ddp: the measuring process was killed" in last.note


def test_what_could_not_be_saved_is_not_measured(
    install_gpus: Install, run_as_cuda: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gpus(box(A100, 2))
    monkeypatch.setattr("scalecard.run._outcomes", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(ValueError, match=r"measure.max_seconds = Infinity"):
        run_as_cuda("async_timing", **PRODUCTS, measure={**SHORTEST, "max_seconds": math.inf})
    (tmp_path / "results").touch()
    with pytest.raises(NotSaved, match="nothing was measured"):
        run_as_cuda("async_timing", **PRODUCTS)


def test_what_cannot_be_saved_any_more_is_kept_in_the_folder_above(
    install_gpus: Install, run_as_cuda: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gpus(box(A100, 2))

    def replaced_by_a_file(*measured: Any) -> Iterator[run.Outcome]:
        (tmp_path / "results").mkdir()
        (tmp_path / "results" / probe().slug).touch()
        yield run.Outcome([timed([1.5])], [])

    monkeypatch.setattr("scalecard.run._outcomes", replaced_by_a_file)
    with pytest.raises(NotSaved, match=r"results/async_timing.json.unsaved$"):
        run_as_cuda("async_timing", **PRODUCTS)
    kept = files.load(tmp_path / "results" / "async_timing.json.unsaved")
    assert [record.samples for record in kept.records] == [[[1.5]]]


@pytest.mark.parametrize(
    ("folder", "recorded"),
    [
        ("data", "data"),
        ("./data/images", "data/images"),
        ("/home/alice/data", "outside the project"),
        ("../alice", "outside the project"),
    ],
)
def test_a_result_does_not_say_where_the_user_keeps_data(folder: str, recorded: str) -> None:
    for given, expected in ((folder, recorded), (str(Path.cwd() / "data"), "data")):
        values = run.checked("ddp", block("ddp", data_dir=given)).values
        assert run._unmeasured("ddp", "box", values, {}).spec["data_dir"] == expected


def test_a_result_over_two_nodes_describes_both(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first, second = (nodes.Nodes(2, index, "127.0.0.1", port) for index in range(2))
    facts = {**environment(machine), "host": "aaaaaaaa"}
    with nodes.keep_store(first):
        assert run._of_nodes(second, {**facts, "host": "bbbbbbbb", "ram_bytes": 1}) == []
        described = run._of_nodes(first, facts)
    more = {"path": ["ram_bytes"], "value": 1}
    assert described == [{"host": "aaaaaaaa", "differs": []}, {"host": "bbbbbbbb", "differs": [more]}]
    assert run._of_nodes(nodes.Nodes(), facts) == []


@pytest.mark.parametrize(("over", "gpus", "asked"), [(0, 2, None), (1, 1, None), (1, 2, (2, 1)), (2, 4, (8, 2))])
def test_nccl_is_asked_which_way_it_sends_once_for_all_ranks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, over: int, gpus: int, asked: tuple[int, int] | None
) -> None:
    calls: list[tuple[int, int]] = []

    def used(machine: Machine, layout: Layout) -> dict[str, int]:
        calls.append((layout.ranks, layout.nodes))
        raise RanksFailed("on purpose")

    monkeypatch.setattr("scalecard.distributed.launch.transport_paths", used)
    monkeypatch.setattr(run, "in_a_fresh_process", lambda _name, work, *args: work(*args))  # which knows no patches
    assert run._nccl_paths("ddp", over, replace(machine, num_devices=gpus)) == {}, "and measuring goes on"
    assert calls == ([asked] if asked else [])


def test_the_start_of_nccl_leaves_nothing_that_outlives_the_runs_temporary_folder() -> None:
    """Its ranks' fork server kept its socket there, and the process ended with a traceback after its last word."""
    script = (
        "from dataclasses import replace\n"
        "from scalecard.hardware import isolation\n"
        "from scalecard.hardware.machine import probe\n"
        "from scalecard.run import _nccl_paths\n"
        "if __name__ == '__main__':\n"
        "    with isolation.own_folder():\n"
        "        print(_nccl_paths('ddp', 1, replace(probe(), num_devices=2)))\n"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(script)
        file.flush()
        path = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, file.name],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": path},
        )
    assert "Traceback" not in done.stderr
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "{}")
