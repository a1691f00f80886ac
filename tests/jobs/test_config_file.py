"""A configuration file is refused, with its name, line and key, for what YAML allows and no configuration means."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from scalecard.jobs.config_file import DEEPEST, MOST_BYTES, InvalidConfig, check_files, parse
from support.projects import ROOT, SMOKE

LETTERS = "abcdefghijklmnopqrstuvwxyz"
BOMB = "a: &a [x, x]\n" + "".join(f"k{new}: &{new} [*{old}, *{old}, *{old}]\n" for old, new in pairwise(LETTERS))


def problem(text: str) -> str:
    """The one line about a text."""
    with pytest.raises(InvalidConfig) as error:
        parse(text, "my.yaml")
    (line,) = str(error.value).splitlines()
    return line


def test_the_projects_own_files_are_read() -> None:
    check_files([ROOT / "config.yaml", ROOT / SMOKE[1]])
    assert parse((ROOT / SMOKE[1]).read_text(), "")["scale"] == "quick"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "measure:\n  processes: 1\n  precision: 0.1\n  processes: 2",
            "line 4: measure.processes: the key is there twice",
        ),
        ("experiments: {ddp: {}}\nexperiments: {hybrid: {}}", "line 2: experiments: the key is there twice"),
        ("{experiments: {ddp: {quick: {lr: 1}, quick: {}}}}", "line 1: experiments.ddp.quick: the key is there twice"),
        ("pathvars: 3", "line 1: pathvars: unknown key; "),
        ("__use_yte__: true", "line 1: __use_yte__: unknown key; "),
        ("on: 1", "line 1: on: this key is no text but a bool"),
        ("measure: {3: 1}", "line 1: measure.3: this key is no text but a int"),
        ("seed: 2024-01-01", "line 1: seed: a timestamp in YAML; accepted: text, numbers"),
        ("seed: !!binary aGk=", "line 1: seed: a binary in YAML; accepted: "),
        ("a: {b: [1, !!set {c: null}]}", "line 1: a.b.1: a set in YAML; accepted: "),
        ("seed: !!python/name:os.system", "line 1: seed: a python/name:os.system in YAML; accepted: "),
        ("lr: 1e-3", "line 1: lr: 1e-3 is text in YAML; write the number as in 1.0e-3"),
        ("minutes: 1:30", "line 1: minutes: 1:30 is an unusual whole number"),
        ("seed: 010", "line 1: seed: 010 is an unusual whole number"),
        ("seed: " + "9" * 5000, "line 1: seed: 9999999999"),
        ("seed: 1:30.5", "line 1: seed: 1:30.5 is a number to the base 60"),
        ("a: &a [*a]", "line 1: a.0: refers to itself"),
        ("a: [", "line 1: not valid YAML: "),
        ("seed: *nothing", "line 1: not valid YAML: found undefined alias"),
        ("a: 1\n---\nb: 2", "line 2: not valid YAML: "),
    ],
)
def test_what_is_odd_is_named_with_its_line_and_key(text: str, told: str) -> None:
    assert problem(text).startswith(f"my.yaml, {told}")


@pytest.mark.parametrize("text", ["- a", "text", "3"])
def test_a_file_without_keys_is_refused(text: str) -> None:
    assert problem(text) == "my.yaml: must hold keys and values, as config.yaml does"


def test_an_alias_bomb_is_one_line_at_once() -> None:
    assert "more than 100000 values" in problem(BOMB)


@pytest.mark.parametrize("depth", [DEEPEST + 2, 1_200])
def test_deep_nesting_is_one_line(depth: int) -> None:
    assert f"nested more than {DEEPEST} deep" in problem("a: " + "[" * depth + "]" * depth)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing", None),
        ("a: &a {b: 1}\nc: {<<: *a, b: 2}", {"a": {"b": 1}, "c": {"b": 2}}),
        ("a: ['1e3', \"2024-01-01\", 1_000]", {"a": ["1e3", "2024-01-01", 1000]}),
    ],
)
def test_what_is_not_odd_is_read(text: str, value: object) -> None:
    assert parse(text, "my.yaml") == value


def test_every_problem_of_every_file_is_told(tmp_path: Path) -> None:
    files = {"a.yaml": b"seed: 010\non: 1", "b.yaml": b"\xff", "c.yaml": b"#" * (MOST_BYTES + 1), "d.yaml": b"\0"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "e.yaml").mkdir()
    with pytest.raises(InvalidConfig) as error:
        check_files(tmp_path / name for name in (*files, "e.yaml", "missing.yaml"))
    told = sorted(line.strip().removeprefix(f"{tmp_path}/") for line in str(error.value).splitlines()[1:])
    assert [": ".join(line.split(": ")[:2]) for line in told] == [
        *("a.yaml, line 1: seed", "a.yaml, line 2: on", "b.yaml: cannot be read", "c.yaml: cannot be read"),
        *("d.yaml: not valid YAML", "e.yaml: cannot be read"),
    ]
    reasons = ["not UTF-8", "larger than 1000000 bytes", "not a file"]
    assert [told[index].split(": ")[2] for index in (2, 3, 5)] == reasons


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "config.yaml", "docs/clusters.md"])
def test_documented_commands_name_no_target_after_a_configuration_file(document: str) -> None:
    """Snakemake takes it for another file: `snakemake --configfile my.yaml ddp` does not measure ddp."""
    lines = (ROOT / document).read_text().splitlines()
    commands = [line.split("  #")[0] for line in lines if re.match(r" {4}(make|snakemake) |# .*: +snakemake ", line)]
    assert commands
    for command in commands:
        after = re.split(r"--configfile \S+", command.split("  (")[0])[1:]
        assert all(re.match(r"\s*($|--)", rest) for rest in after), command


def test_the_readme_says_where_targets_go() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    assert "Put targets before `--configfile`" in text
