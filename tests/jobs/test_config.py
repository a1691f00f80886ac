"""From config.yaml to what the rules need; bad values are refused with key, value and what is accepted."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scalecard.hardware.machine import probe
from scalecard.hardware.vendors import nvidia
from scalecard.jobs import config
from scalecard.jobs.config import InvalidConfig, merged_block, resolve
from support.blocks import CONFIG
from support.fake_nvml import H100, FakeNvml, box
from support.projects import ROOT, copy_project, snakemake

Install = Callable[..., FakeNvml]


@pytest.fixture(autouse=True)
def project_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def problems(**changes: Any) -> list[str]:
    with pytest.raises(InvalidConfig) as error:
        resolve({**CONFIG, **changes}, check=False)
    return [line.strip() for line in str(error.value).splitlines()[1:]]


def test_a_lost_gpu_stops_the_workflow_where_it_measures(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gpus(box(H100, 3))
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    with pytest.raises(InvalidConfig, match="lists only 3"):
        resolve(CONFIG, check=True)
    elsewhere = {"cluster": "slurm", "platform": "h100x4", "scale": "full"}
    monkeypatch.setattr(config, "_check_blocks", lambda config, marker, *, in_sif: None)
    assert resolve({**CONFIG, **elsewhere}, check=True).platform == "h100x4"


def test_an_old_driver_stops_the_workflow_unless_the_image_has_another_pytorch(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gpus(box(H100, 2), driver="570.86.10")
    monkeypatch.setattr(nvidia, "version_of", lambda packages: "13.2.86")
    monkeypatch.setattr(config, "_check_blocks", lambda config, marker, *, in_sif: None)
    with pytest.raises(InvalidConfig, match="supports CUDA 12, but this PyTorch needs CUDA 13"):
        resolve(CONFIG, check=True)
    for_cuda_12 = {**CONFIG["container"], "base_image": "pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime"}
    assert resolve({**CONFIG, "container": for_cuda_12}, check=True).machine.driver == "570.86.10"


@pytest.mark.parametrize(("gpus", "scale"), [(2, "full"), (0, "quick")])
def test_auto_is_this_machine(install_gpus: Install, gpus: int, scale: str) -> None:
    install_gpus(box(H100, gpus))
    settings = resolve(CONFIG, check=False)
    assert settings.machine == probe()
    assert settings.platform == probe().slug
    assert settings.scale == scale
    assert settings.blocks == {name: json.dumps(merged_block(CONFIG, name, scale)) for name in CONFIG["experiments"]}


def test_a_block_has_the_shared_values_and_its_own_at_its_scale() -> None:
    full, quick = (merged_block(CONFIG, "allreduce", scale) for scale in ("full", "quick"))
    own = CONFIG["experiments"]["allreduce"]
    assert (full["bytes"], quick["bytes"]) == (own["bytes"], own["quick"]["bytes"])
    assert full["measure"]["processes"] == CONFIG["measure"]["processes"]
    assert quick["measure"] == {**full["measure"], **CONFIG["measure"]["quick"]}
    for block in (full, quick):
        assert block["seed"] == CONFIG["seed"]
        assert not {"quick", "minutes"} & set(block)


def test_only_experiments_that_span_nodes_get_their_number() -> None:
    spanning = {**CONFIG, "cluster": "slurm", "platform": "a100", "scale": "full", "nodes": 3}
    settings = resolve(spanning, check=False)
    assert {name for name, count in settings.nodes.items() if count == 3} == {
        "allreduce",
        "ddp",
        "health",
        "hybrid",
        "strategies",
    }
    assert json.loads(settings.blocks["ddp"])["nodes"] == 3
    assert "nodes" not in json.loads(settings.blocks["pipeline"])


def test_an_experiment_may_have_minutes() -> None:
    blocks = {"ddp": {"minutes": 7, "quick": {"minutes": 3}}, "hybrid": CONFIG["experiments"]["hybrid"]}
    node = {**CONFIG, "cluster": "slurm", "platform": "a100", "experiments": blocks}
    for scale, minutes in (("full", 7), ("quick", 3)):
        settings = resolve({**node, "scale": scale}, check=False)
        assert settings.needs["ddp"] == 60 * minutes
        assert 0 < settings.needs["hybrid"] < 7200


def test_what_is_needed_is_for_the_devices_that_are_used() -> None:
    one, two = (resolve({**CONFIG, "scale": "full", "devices": count}, check=False).needs for count in (1, 2))
    assert all(one[name] <= two[name] for name in one)
    assert one["ddp"] < two["ddp"]
    assert [name for name, seconds in one.items() if not seconds] == ["allreduce", "pipeline", "hybrid"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"devices": 0}, "devices: 0 is less than the minimum of 1; accepted: "),
        ({"sclae": "full"}, "sclae: unknown key; did you mean 'scale'?"),
        ({"dataset": "mnist"}, "dataset: 'mnist' is not one of"),
        ({"platform": "a b"}, "platform: 'a b' does not match"),
        (
            {"measure": {**CONFIG["measure"], "presision": 1}},
            "measure.presision: unknown key; did you mean 'precision'?",
        ),
        ({"devices": 999}, "devices = 999: "),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(changes: dict[str, Any], named: str) -> None:
    (problem,) = problems(**changes)
    assert problem.startswith(named)


def test_all_problems_are_told_at_once() -> None:
    told = problems(devices=0, sclae="full", dataset="mnist")
    assert sorted(problem.split(":")[0] for problem in told) == ["dataset", "devices", "sclae"]


def test_more_devices_than_gpus_are_refused_with_their_number(install_gpus: Install) -> None:
    install_gpus(box(H100, 2))
    assert resolve({**CONFIG, "devices": 2}, check=False).machine.gpus == [H100.name] * 2
    (problem,) = problems(devices=3)
    assert problem.startswith("devices = 3: ")
    assert "2" in problem.split(": ")[1]


class Checker:
    """In the place of the process that builds the Specs: its exit status, and how often it was started."""

    def __init__(self, status: int = 0, said: str = "") -> None:
        self.status, self.said, self.scales = status, said, list[dict[str, Any]]()
        self.environments = list[dict[str, str]]()

    def run(self, command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        self.scales.append(json.loads(Path(command[-1]).read_text()))
        self.environments.append(options["env"])
        return subprocess.CompletedProcess(command, self.status, "", self.said)


@pytest.fixture
def checked_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Checker], None]:
    def use(checker: Checker) -> None:
        monkeypatch.setattr(config, "CHECKED", tmp_path / "checked")
        monkeypatch.setattr(config, "BLOCKS", tmp_path / "blocks.json")
        monkeypatch.setattr("scalecard.jobs.config.subprocess.run", checker.run)

    return use


def test_the_blocks_of_both_scales_are_checked_once(
    checked_by: Callable[[Checker], None], install_gpus: Install
) -> None:
    install_gpus([])
    checker = Checker()
    checked_by(checker)
    for _ in range(2):
        resolve(CONFIG, check=True)
    (scales,) = checker.scales
    assert set(scales) == {"full", "quick"}
    resolve({**CONFIG, "seed": 7}, check=True)
    assert len(checker.scales) == 2, "other values are checked too"


def test_a_check_that_is_killed_says_so(checked_by: Callable[[Checker], None], install_gpus: Install) -> None:
    install_gpus([])
    checked_by(Checker(-9))
    with pytest.raises(InvalidConfig, match=r"could not be checked: signal 9; is memory short\?"):
        resolve(CONFIG, check=True)


@pytest.mark.parametrize(
    ("container", "in_sif", "in_image"),
    [
        ({}, False, ""),
        ({"packages": "my.lock"}, False, "1"),
        ({"image": "own.sif"}, False, "1"),
        ({"packages": "my.lock", "engine": "none"}, False, ""),
        ({"packages": "my.lock", "engine": "none"}, True, "1"),
        ({"engine": "none"}, True, ""),
    ],
)
def test_the_check_is_told_if_packages_may_be_in_the_image_alone(
    checked_by: Callable[[Checker], None],
    install_gpus: Install,
    monkeypatch: pytest.MonkeyPatch,
    container: dict[str, Any],
    in_sif: bool,
    in_image: str,
) -> None:
    install_gpus([])
    monkeypatch.setattr("scalecard.jobs.config.build.package_problems", lambda container: [])
    checker = Checker()
    checked_by(checker)
    for image in (container, {"engine": "none"}):
        resolve({**CONFIG, "container": {**CONFIG["container"], **image}}, check=True, in_sif=in_sif)
    found = [environment["SCALECARD_PACKAGES_IN_IMAGE"] for environment in checker.environments]
    assert found == ([in_image, ""] if in_image else [""]), "what passed there is checked again for the host"


@pytest.mark.parametrize(
    ("status", "said", "told"),
    [(2, "a.b = 1: bad\nc: missing", ["a.b = 1: bad", "c: missing"]), (1, "no torch", ["no torch"])],
)
def test_what_the_check_refuses_is_told_and_checked_again(
    checked_by: Callable[[Checker], None], install_gpus: Install, status: int, said: str, told: list[str]
) -> None:
    install_gpus([])
    checker = Checker(status, said)
    checked_by(checker)
    for count in (1, 2):
        with pytest.raises(InvalidConfig) as error:
            resolve(CONFIG, check=True)
        assert [line.strip() for line in str(error.value).splitlines()[1:]] == told
        assert len(checker.scales) == count


@pytest.mark.workflow
def test_snakemake_shows_one_error_and_no_traceback_before_any_job(tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    experiments = {"pipeline": {"split_sizes": [500]}, "allreduce": {"bites": [4]}, "ddp": {"quick": {"lr": 0}}}
    (project / "bad.yaml").write_text(json.dumps({"experiments": experiments}))
    done = snakemake(project, "--configfile", "bad.yaml", "--config", "scale=full")
    told = sorted(line.strip() for line in done.stdout.split("is not valid:")[1].splitlines()[1:4])
    assert told[0].startswith("experiments.allreduce.bites: ")
    assert told[1].startswith("experiments.ddp.quick.lr = 0: "), "although this scale does not use it"
    assert told[2].startswith("experiments.pipeline: split_sizes = 500: ")
    twice = (project / "config.yaml").read_text() + "\nexperiments: {ddp: {}}\npathvars: 3\n"
    (project / "config.yaml").write_text(twice)
    refused = snakemake(project)
    assert "config.yaml, line" in refused.stdout
    for told in ("experiments: the key is there twice", "pathvars: unknown key"):
        assert told in refused.stdout
    for each in (done, refused):
        assert each.returncode != 0
        assert "Traceback" not in each.stdout
        assert "rule " not in each.stdout
