"""config.yaml's workloads: what is wrong with one is one line with its key, and its files are inputs and hashed."""

import json
from pathlib import Path
from typing import Any

import pytest
from scalecard.jobs import workloads
from scalecard.jobs.config import InvalidConfig, merged_block, resolve
from support.blocks import CONFIG


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model that imports a helper, which imports a package, and a file that nobody imports."""
    (tmp_path / "models" / "parts").mkdir(parents=True)
    (tmp_path / "models" / "mine.py").write_text("import torch\nfrom helper import f\n")
    (tmp_path / "models" / "helper.py").write_text("def f():\n    from parts import layers\n")
    (tmp_path / "models" / "parts" / "__init__.py").write_text("")
    (tmp_path / "models" / "parts" / "layers.py").write_text("import helper\n")
    (tmp_path / "models" / "other.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mine(**values: Any) -> dict[str, Any]:
    return {"mine": {"file": "models/mine.py", "batch_size": 2, **values}}


def test_a_files_inputs_are_what_it_imports_from_its_own_folder(project: Path) -> None:
    names = ("helper.py", "mine.py", "parts/__init__.py", "parts/layers.py")
    assert workloads.files({**mine(), "gpt": {"batch_size": 1}, "toy": None}) == [f"models/{name}" for name in names]


@pytest.mark.parametrize(("name", "counts"), [("parts/layers.py", True), ("mine.py", True), ("other.py", False)])
def test_what_it_is_made_of_is_hashed(project: Path, name: str, counts: bool) -> None:
    before = workloads.scaled(mine(), "full")["mine"]["source"]
    with open(project / "models" / name, "a") as file:
        file.write("\n# another line\n")
    assert (workloads.scaled(mine(), "full")["mine"]["source"] != before) is counts
    assert len(before) == 64


def test_the_quick_values_replace_the_others_at_the_quick_scale_and_null_leaves_a_workload_out(project: Path) -> None:
    given = {"gpt": {"batch_size": 8, "layers": 12, "quick": {"layers": 2}}, "toy": None}
    assert workloads.scaled(given, "full") == {"gpt": {"batch_size": 8, "layers": 12}}
    assert workloads.scaled(given, "quick") == {"gpt": {"batch_size": 8, "layers": 2}}
    assert workloads.scaled({"gpt": {"batch_size": 8, "quick": None}}, "quick") == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gtp": {"batch_size": 1}}, "workloads.gtp: no file, and no built-in workload; did you mean 'gpt'?"),
        (mine(file="mine.py"), "workloads.mine.file = mine.py: no such file"),
        (mine(file="models"), "workloads.mine.file = models: must be the path of a Python file"),
        ({"gpt": {}}, "workloads.gpt.batch_size: missing"),
        (mine(quick={"file": "x.py"}), "workloads.mine.quick.file: a workload has one file, the same at both scales"),
        ({"gpt": {"batch_size": 1, "source": "x"}}, "workloads.gpt.source: set by the workflow; choose another name"),
        (
            {"gpt": {"batch_size": 1, "quick": None}},
            "workloads: every one is null at the quick scale; what trains them needs one",
        ),
    ],
)
def test_what_is_wrong_is_one_line_with_its_key(project: Path, given: dict[str, Any], said: str) -> None:
    assert list(workloads.problems(given)) == [said]


def test_a_file_outside_of_the_folder_is_refused(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "mine.py"
    outside.write_text("")
    (line,) = workloads.problems(mine(file=str(outside)))
    assert line.startswith(f"workloads.mine.file = {outside}: must be relative to this folder, because results say it")
    (Path("models") / "link.py").symlink_to(outside)
    (line,) = workloads.problems(mine(file="models/link.py"))
    assert line.endswith("must lie in this folder or below, because containers see nothing else")


def test_relative_imports_are_followed_from_the_file_that_has_them(project: Path) -> None:
    (project / "models" / "parts" / "layers.py").write_text("from .deep import f\nfrom . import wide\nimport helper\n")
    for name in ("deep", "wide"):
        (project / "models" / "parts" / f"{name}.py").write_text("")
    assert {"models/parts/deep.py", "models/parts/wide.py", "models/helper.py"} <= set(workloads.files(mine()))


def test_modules_beside_each_other_are_told_apart_by_their_place(project: Path) -> None:
    """Also one that is reached from a file in a folder below."""
    (project / "models" / "below").mkdir()
    (project / "models" / "below" / "theirs.py").write_text("from .. import helper\n")
    theirs = {"theirs": {"file": "models/below/theirs.py", "batch_size": 1}}
    assert not list(workloads.problems({**mine(), **theirs}))


def test_two_folders_with_modules_of_one_name_are_refused(project: Path) -> None:
    (project / "others").mkdir()
    (project / "others" / "theirs.py").write_text("import helper\n")
    (project / "others" / "helper.py").write_text("")
    theirs = {"theirs": {"file": "others/theirs.py", "batch_size": 1}}
    (line,) = workloads.problems({**mine(), **theirs})
    assert line == (
        "workloads.theirs.file = others/theirs.py: imports others/helper.py, and another workload models/helper.py;"
        " rename one"
    )
    assert list(workloads.problems(theirs)) == []


def test_what_trains_the_workloads_gets_them() -> None:
    assert list(merged_block(CONFIG, "strategies", "full")["workloads"]) == ["resnet50", "gpt"]
    assert list(merged_block(CONFIG, "strategies", "quick")["workloads"]) == ["resnet18_eighth", "gpt"]
    for name in ("input", "tuning"):
        assert list(merged_block(CONFIG, name, "quick")["workloads"]) == ["gpt"], "they leave one out"
    assert "workloads" not in merged_block(CONFIG, "ddp", "quick")


def test_what_is_left_out_is_trained_if_there_is_nothing_else() -> None:
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    config["workloads"]["gpt"] = None
    assert list(merged_block(config, "tuning", "quick")["workloads"]) == ["resnet18_eighth"]


def test_only_what_is_trained_can_be_left_out() -> None:
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    config["experiments"]["tuning"]["leave_out"] = ["gtp"]
    with pytest.raises(InvalidConfig, match=r"tuning\.leave_out = gtp: no such workload; did you mean"):
        resolve(config, check=False)


def test_the_configuration_is_checked_for_them_only_if_something_trains_them() -> None:
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    config["workloads"]["gtp"] = {"batch_size": 1}
    with pytest.raises(InvalidConfig, match=r"workloads.gtp: no file"):
        resolve(config, check=False)
    del config["experiments"]["strategies"]
    with pytest.raises(InvalidConfig, match=r"workloads.gtp: no file"):
        resolve(config, check=False)
    for name in ("input", "tuning"):
        del config["experiments"][name]
    assert not any(resolve(config, check=False).workload_files.values())
