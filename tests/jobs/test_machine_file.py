"""machine.json changes only with the machine, and never under results of another one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scalecard.hardware.machine import Machine
from scalecard.jobs.config import InvalidConfig
from scalecard.jobs.inputs import read_machine, write_machine
from support.builders import repeated


def test_what_was_written_is_read_and_not_written_again(tmp_path: Path, machine: Machine) -> None:
    path = tmp_path / "box" / "machine.json"
    write_machine(path, machine)
    written = path.stat().st_ino
    write_machine(path, machine)
    assert path.stat().st_ino == written, "Snakemake would measure again"
    assert read_machine(path) == machine


def test_another_machine_over_results_is_refused_with_label_and_facts(
    save_result: Callable[..., Path], machine: Machine
) -> None:
    path = save_result("box", repeated(1.0)).with_name("machine.json")
    write_machine(path, machine)
    newer = replace(machine, driver="580.1")
    with pytest.raises(InvalidConfig, match=r"machine\.json: .*'box'.*driver .* now 580\.1.*platform:"):
        write_machine(path, newer)
    assert read_machine(path) == machine


def test_without_results_another_machine_takes_its_place(tmp_path: Path, machine: Machine) -> None:
    path = tmp_path / "machine.json"
    (tmp_path / "container.json").touch()
    write_machine(path, machine)
    newer = replace(machine, driver="580.1")
    write_machine(path, newer)
    assert read_machine(path) == newer


def test_another_number_of_devices_is_the_same_machine(save_result: Callable[..., Path], machine: Machine) -> None:
    path = save_result("box", repeated(1.0)).with_name("machine.json")
    write_machine(path, machine)
    write_machine(path, replace(machine, num_devices=machine.num_devices + 1))
    assert read_machine(path).num_devices == machine.num_devices + 1
