"""Which result files are used: what is wrong with another platform's is named and stops nothing."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from scalecard.analysis.platforms import gather
from scalecard.hardware.machine import Machine
from scalecard.jobs.inputs import write_machine
from scalecard.records.files import InvalidResult
from support.builders import repeated

Save = Callable[..., Path]


@pytest.fixture
def here(save_result: Save) -> Path:
    """The current platform's result."""
    return save_result("here", repeated(1.0))


@pytest.fixture
def other(save_result: Save) -> Path:
    """Another platform's."""
    return save_result("other", repeated(2.0))


def altered(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, **changes}))


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_broken_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "of an old schema": (lambda path: altered(path, schema_version=1), "schema version"),
    "damaged": (lambda path: path.write_text(path.read_text()[:500]), "not readable JSON"),
    "empty": (lambda path: path.write_text(""), "is empty"),
    "foreign": (lambda path: path.write_text('{"name": "x"}'), "schema version"),
    "a FIFO": (as_fifo, "no regular file"),
    "a broken link": (as_broken_link, "cannot be read"),
    "a folder": (as_folder, "cannot be read"),
    "of another experiment": (lambda path: altered(path, experiment="ddp"), "'ddp'"),
}


@pytest.mark.parametrize("how", UNUSABLE)
def test_a_file_of_another_platform_is_left_out_and_named(here: Path, other: Path, how: str) -> None:
    alter, said = UNUSABLE[how]
    alter(other)
    found = gather([here, other])
    assert [result.platform for result in found.results] == ["here"]
    (left_out,) = found.left_out
    assert left_out.what == "other/async_timing.json"
    assert said in left_out.reason
    assert "measures it again" not in str(left_out)
    assert str(other) not in left_out.reason


@pytest.mark.parametrize("how", UNUSABLE)
def test_the_same_of_the_current_platform_is_an_error_with_the_remedy(here: Path, other: Path, how: str) -> None:
    alter, said = UNUSABLE[how]
    alter(here)
    with pytest.raises(InvalidResult, match=rf"^{here}: .*{said}.*the next run measures it again\.$"):
        gather([here, other])


@pytest.mark.parametrize("become", [as_fifo, as_broken_link, as_folder])
def test_what_cannot_be_an_input_of_a_rule_is_named_too(
    here: Path, other: Path, become: Callable[[Path], None]
) -> None:
    become(other)
    assert [each.what for each in gather([here]).left_out] == ["other/async_timing.json"]


def test_a_copy_of_a_folder_is_named_and_its_numbers_do_not_count(here: Path, other: Path) -> None:
    for original, copy in ((here, "backup"), (other, "zz")):
        shutil.copytree(original.parent, original.parent.with_name(copy))
    copies = [here.parent.with_name(name) / here.name for name in ("backup", "zz")]
    found = gather([here, other, *copies])
    assert [result.platform for result in found.results] == ["here", "other"]
    assert [each.what for each in found.left_out] == ["backup/async_timing.json", "zz/async_timing.json"]
    assert "in the folder 'backup', but of platform 'here'" in found.left_out[0].reason


def test_a_fingerprint_that_is_not_its_machines_is_left_out(here: Path, other: Path, machine: Machine) -> None:
    environment = json.loads(other.read_text())["environment"]
    altered(other, environment={**environment, "machine": asdict(replace(machine, cores=999))})
    (left_out,) = gather([here, other]).left_out
    assert "fingerprint" in left_out.reason


def test_a_file_of_another_machine_in_a_folder_is_left_out(here: Path, other: Path, machine: Machine) -> None:
    newer = replace(machine, cores=999)
    write_machine(other.with_name("machine.json"), newer)
    (left_out,) = gather([here, other]).left_out
    assert newer.fingerprint in left_out.reason
