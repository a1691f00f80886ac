"""Result files: the round trip, and refusing what is not one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from scalecard.hardware.environment import environment
from scalecard.hardware.machine import probe
from scalecard.records.files import InvalidResult, as_json, is_result_file, load, parse, refuse_mixed_machines, save
from scalecard.records.record import Check, Count, Record, Result, Telemetry
from support.builders import gpu_state, hardware_state
from support.every_experiment import every_result
from support.fake_nvml import A100, box
from support.projects import ROOT

OK = Record(
    case={"devices": 2, "dtype": "float32", "nodes": None},
    metric="time",
    unit="s",
    samples=[[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]],
    checks=[Check(name="sum", dtype="float64", difference=0.0, tolerance=0.0)],
    work=[Count(name="FLOPs", counted=2000, expected=2000)],
    telemetry=[Telemetry(rounds_id="a", stopped="30 rounds"), Telemetry(rounds_id="b")],
)
WATCHED = Telemetry(
    rounds_id="c",
    iterations=20,
    stopped="interval within 1 %",
    joules=0.25,
    measured_again="thermal slowdown (hardware) on GPU 0",
    state=hardware_state(
        gpu_state(reasons={"power cap": 0.75}, others_memory_bytes=2**30),
        gpu_state(sm_clock_mhz=None, temperature_c=None, power_w=None, others_memory_bytes=None, pcie_gen=None),
        cpu_mhz=None,
        steal=None,
        missing={"cpu_mhz": "not supported"},
    ),
)
SKIPPED = Record.skipped({"devices": 4}, "needs 4 devices")
Damage = Callable[[dict[str, Any]], object]


@pytest.fixture
def path(tmp_path: Path, make_result: Callable[..., Result]) -> Path:
    """A result file."""
    alone = replace(OK, case={"devices": 1}, samples=[[0.1]], telemetry=[WATCHED])
    save(make_result([OK, alone, SKIPPED]), tmp_path / "a.json")
    return tmp_path / "a.json"


@pytest.mark.parametrize("record", [OK, replace(OK, samples=[[0.1]], telemetry=[WATCHED]), SKIPPED])
def test_what_was_saved_is_loaded(tmp_path: Path, make_result: Callable[..., Result], record: Record) -> None:
    result = make_result([record], warnings=["GPU 0 was busy"])
    save(result, tmp_path / "a.json")
    assert load(tmp_path / "a.json") == result


def test_the_environment_of_gpus_is_loaded_as_it_was_saved(
    tmp_path: Path, make_result: Callable[..., Result], install_gpus: Callable[..., object]
) -> None:
    install_gpus(box(A100, 2))
    result = make_result([OK], environment=environment(probe()))
    save(result, tmp_path / "a.json")
    assert load(tmp_path / "a.json").environment == result.environment
    assert len(result.environment["gpus"]) == 2


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda d: d.pop("records"), "records"),
        (lambda d: d.update(hostname="x"), "hostname"),
        (lambda d: d.update(schema_version=99), "schema_version"),
        (lambda d: d["environment"].update(user="x"), "environment"),
        (lambda d: d["records"][0].pop("unit"), "unit"),
        (lambda d: d["records"][0].update(samples=[0.1]), "samples"),
        (lambda d: d["records"][0].update(samples=[]), "samples"),
        (lambda d: d["records"][0]["samples"][1].append("fast"), "samples"),
        (lambda d: d["records"][0]["checks"][0].update(passed=False), "checks[0].passed: False: is not"),
        (lambda d: d["records"][0]["telemetry"][0].pop("rounds_id"), "rounds_id"),
        (lambda d: d["records"][1]["telemetry"][0]["state"]["gpus"][0].update(reasons=4), "reasons"),
        (lambda d: d["records"][1]["telemetry"][0]["state"]["gpus"][0]["power_w"].pop("low"), "low"),
        (lambda d: d["records"][2].update(note=""), "note"),
    ],
)
def test_a_damaged_file_is_refused_by_name_and_field(path: Path, damage: Damage, named: str) -> None:
    data = json.loads(path.read_text())
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidResult) as error:
        load(path)
    assert str(path) in str(error.value)
    assert named in str(error.value)


def test_a_result_of_schema_version_1_is_refused_by_its_version(path: Path) -> None:
    data = json.loads(path.read_text())
    data["schema_version"] = 1
    for record in data["records"]:
        record["samples"] = [sample for process in record["samples"] for sample in process]
        record["telemetry"] = [{"count": 3, "rounds_id": "a"}]
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidResult, match=r"a\.json: \$\.schema_version: .*not a result of schema version 5"):
        load(path)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"name": "something else"}'])
def test_a_truncated_or_foreign_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InvalidResult, match=r"a\.json"):
        load(tmp_path / "a.json")


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    for name in ("a.json", "b.json"):
        with pytest.raises(InvalidResult, match=name.replace(".", r"\.")):
            load(tmp_path / name)


@pytest.mark.parametrize(
    "bad",
    [
        replace(OK, checks=[Check(name="x", dtype="float64", difference=1, tolerance=0)]),
        replace(OK, samples=[[float("nan")]]),
        replace(OK, samples=[[1.0, 2.0], [float("nan"), 1.0]], telemetry=[]),
        replace(SKIPPED, status="maybe"),
    ],
)
def test_what_is_not_valid_cannot_be_saved(tmp_path: Path, make_result: Callable[..., Result], bad: Record) -> None:
    with pytest.raises(ValueError, match=r"passed|finite|maybe"):
        save(make_result([bad]), tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_the_uncertainty_in_the_file_is_that_of_the_record(path: Path) -> None:
    first, *_ = json.loads(path.read_text())["records"]
    between = load(path).records[0].between
    assert between
    assert first["uncertainty"] == {"within": None, "between": [between.low, between.high]}


def test_two_machines_on_one_platform_are_refused_with_files_and_facts(make_result: Callable[..., Result]) -> None:
    one = make_result([OK])
    newer = {**one.environment["machine"], "driver": "580.1"}
    environment = {**one.environment, "machine": newer, "fingerprint": "0" * 12}
    other = replace(one, experiment="allreduce", environment=environment)
    elsewhere = replace(other, platform="another")
    refuse_mixed_machines([one, elsewhere], "results")
    with pytest.raises(ValueError, match=r"async_timing\.json and allreduce\.json .*'box'.*driver .* and 580\.1"):
        refuse_mixed_machines([one, elsewhere, other], "results")


@pytest.mark.parametrize(
    ("name", "is_one"), [("ddp.json", True), ("machine.json", False), ("container.json", False), ("ddp.svg", False)]
)
def test_result_files_are_told_from_others(name: str, is_one: bool) -> None:
    assert is_result_file(Path("results/box", name)) == is_one


def test_every_field_of_telemetry_is_in_the_file(path: Path) -> None:
    stored = json.loads(path.read_text())["records"][1]["telemetry"][0]
    assert stored == asdict(WATCHED)


WRONG: dict[str, tuple[Damage, str]] = {
    "NaN": (lambda d: d["records"][0]["samples"][1].append(float("nan")), r"samples\[1\]\[3\]: nan"),
    "infinite": (lambda d: d["records"][0]["samples"][0].append(float("inf")), r"samples\[0\]\[3\]: inf"),
    "negative": (lambda d: d["records"][0]["samples"][0].append(-0.1), r"samples\[0\]\[3\]"),
    "no time at all": (lambda d: d["records"][0]["samples"][0].append(0.0), r"samples\[0\]\[3\]"),
    "a share above one": (
        lambda d: d["records"][0].update(metric="accuracy", unit="fraction", samples=[[2]]),
        "samples",
    ),
    "a time in bytes": (lambda d: d["records"][0].update(unit="B"), r"records\[0\]\.unit"),
    "a difference above its tolerance": (
        lambda d: d["records"][0]["checks"][0].update(difference=1.0),
        r"checks\[0\]\.passed: true, but the difference 1 is above the tolerance 0",
    ),
    "counts that do not add up": (
        lambda d: d["records"][0]["work"][0].update(counted=1999),
        r"work\[0\]\.passed: true, but 1999 were counted, not 2000",
    ),
    "a process without telemetry": (lambda d: d["records"][0]["telemetry"].pop(), r"telemetry: 1 entries for 2"),
    "samples that have no pair": (
        lambda d: d["records"].append({**d["records"][0], "case": {"devices": 8}, "samples": [[0.1], [0.2]]}),
        r"records\[3\]\.samples: \[1, 1\] samples per process, but \$\.records\[0\]",
    ),
    "a case twice": (lambda d: d["records"].append(d["records"][0]), r"records\[3\]\.case: the same"),
    "no moment": (lambda d: d.update(started="yesterday"), r"started: 'yesterday'"),
    "emulated GPUs": (lambda d: d["environment"].update(emulated=not d["environment"]["emulated"]), "emulated"),
    "GPUs of a CPU": (
        lambda d: d["environment"]["machine"].update(gpus=["NVIDIA H100"]),
        r"machine\.gpus: 1 GPUs, but machine\.kind is 'cpu'",
    ),
    "minus two devices": (lambda d: d["records"][0]["case"].update(devices=-2), r"case\.devices"),
    "memory below zero": (lambda d: d["environment"].update(ram_bytes=-1), r"environment\.ram_bytes"),
    "a list as a case": (lambda d: d["records"][0]["case"].update(mine=[1]), r"case\.mine"),
    "an escape": (lambda d: d["records"][2].update(note="\x1b[2J"), r"note: '\\x1b\[2J' has control"),
    "an escape as a key": (lambda d: d["records"][0]["case"].update({"\x1b[2J": 1}), r"case\.\\x1b\[2J"),
    "half a character": (lambda d: d["warnings"].append("\ud800"), r"warnings\[0\]"),
    "a huge number": (lambda d: d["spec"].update(size=10**400), r"spec\.size"),
    "too deep": (lambda d: d["spec"].update(size=json.loads("[" * 30 + "]" * 30)), "more than 16 deep"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_true_is_refused_with_its_field(path: Path, what: str) -> None:
    damage, named = WRONG[what]
    data = json.loads(path.read_text())
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidResult, match=rf"^{path}: \$.*{named}") as error:
        load(path)
    assert str(error.value).isprintable()


def test_more_gpus_than_the_machine_has_are_refused(tmp_path: Path) -> None:
    result = every_result("box", gpus=2)[0]
    twice = replace(result, environment={**result.environment, "gpus": 2 * result.environment["gpus"]})
    with pytest.raises(InvalidResult, match=r"environment\.gpus: 4 GPUs, but machine\.gpus names 2"):
        save(twice, tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "more than 16 deep"),
        ('{"a": 1, "a": 2}', "the key 'a' twice"),
        ("9" * 5000, "thousands of digits"),
        (" \n", "is empty"),
    ],
)
def test_a_text_that_is_a_trap_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InvalidResult, match=rf"a\.json: .*{said}"):
        load(tmp_path / "a.json")


def test_a_file_is_utf_8_in_every_locale(path: Path) -> None:
    data = json.loads(path.read_text())
    data["records"][2]["note"] = "3 µs"
    path.write_bytes(json.dumps(data, ensure_ascii=False).encode())
    code = "from pathlib import Path; from scalecard.records.files import load\n"
    code += f"print(ascii(load(Path({str(path)!r})).records[2].note))"
    latin = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    latin |= {"PYTHONPATH": str(ROOT / "workflow" / "src")}
    read = subprocess.run([sys.executable, "-c", code], env=latin, check=True, capture_output=True, text=True).stdout
    assert read == ascii("3 µs") + "\n"


def test_no_file_names_who_measured_where(
    tmp_path: Path, make_result: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalecard.records.fields._hosts", lambda: re.compile("box7"))
    told = f"no answer of box7 (10.1.2.3) to {tmp_path}/socket"
    environment = make_result([OK]).environment
    result = make_result(
        [replace(SKIPPED, note=told), replace(OK, telemetry=[replace(WATCHED, measured_again=told)] * 2)],
        warnings=[told],
        spec={"data_dir": str(tmp_path)},
        environment={**environment, "missing": {"commit": told}},
    )
    save(result, tmp_path / "a.json")
    text, hidden = (tmp_path / "a.json").read_text(), "no answer of [host] ([address]) to [path]"
    for secret in ("box7", "10.1.2.3", str(tmp_path)):
        assert secret not in text
    loaded = load(tmp_path / "a.json")
    assert [loaded.warnings, loaded.records[0].note] == [[hidden], hidden]
    assert loaded.spec == {"data_dir": "[path]"}


@pytest.mark.parametrize("where", [(), ("gpus", 0), ("machine",)])
def test_a_fact_that_no_type_describes_is_refused(tmp_path: Path, where: tuple[str | int, ...]) -> None:
    result = every_result("box", gpus=2)[0]
    environment = json.loads(json.dumps(result.environment))
    inner: Any = environment
    for key in where:
        inner = inner[key]
    inner["colour"] = "green"
    with pytest.raises(InvalidResult, match=r"environment, \$.*\.colour"):
        save(replace(result, environment=environment), tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path_to", "field"),
    [
        ((), "schema_version"),
        ((), "budget_seconds"),
        (("records", 0), "telemetry"),
        (("records", 0), "checks"),
        (("records", 0), "uncertainty"),
        (("records", 0, "checks", 0), "passed"),
        (("records", 0, "work", 0), "unit"),
        (("records", 0, "telemetry", 0), "joules"),
    ],
)
def test_a_file_leaves_out_no_field_also_none_with_a_default(
    path: Path, path_to: tuple[str | int, ...], field: str
) -> None:
    data = json.loads(path.read_text())
    inner = data
    for key in path_to:
        inner = inner[key]
    del inner[field]
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidResult, match=field):
        load(path)


def test_a_wrong_uncertainty_is_refused_and_a_value_of_several_types_by_its_own_path(path: Path) -> None:
    data = json.loads(path.read_text())
    data["records"][0]["uncertainty"] = [1]
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidResult, match=r"uncertainty: \[1\]: is not"):
        load(path)
    data["records"][0]["uncertainty"] = {}
    data["records"][0]["samples"][0][0] = True
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidResult, match=r"\$\.records\[0\]\.samples\[0\]\[0\]: True: "):
        load(path)


def test_what_is_loaded_is_written_again_as_it_was() -> None:
    for result in every_result("box", gpus=2, rounds=2):
        text = as_json(result)
        again = json.loads(as_json(parse(text, "a.json")))
        assert json.dumps(again, sort_keys=True) == json.dumps(json.loads(text), sort_keys=True)
