"""The state of the hardware, with a fake NVML: known machines, what goes wrong on them, all the way to the report."""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_nvml
import pytest
import yaml
from fake_nvml import A100, GIB, GTX, H100, Board, FakeNvml, box
from scalecard import devices, host, measure, normal, nvml, preflight, report, runner, schema, settings, specs
from scalecard import machine as machines
from scalecard.devices import CpuDevice
from scalecard.measure import Rule
from scalecard.schema import Result
from test_experiments import block

SHORT = {
    "warmup_seconds": 0,
    "block_seconds": 0,
    "min_rounds": 6,
    "max_rounds": 6,
    "min_seconds": 0,
    "max_seconds": 5,
    "precision": 0.5,
    "processes": 1,
}
Install = Callable[..., FakeNvml]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a fake NVML in the place of the real one."""

    def put(boards: list[Board], **options: Any) -> FakeNvml:
        fake = FakeNvml(boards, **options)
        monkeypatch.setattr(nvml, "pynvml", fake)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(preflight, "LOOK", 0.05)
        return fake

    return put


@pytest.mark.parametrize(
    ("boards", "slug"), [(box(H100, 8), "h100x8-"), (box(A100, 4), "a100x4-"), (box(GTX, 2), "gtx1080x2-")]
)
def test_known_machines_are_named_and_described(install: Install, boards: list[Board], slug: str) -> None:
    install(boards)
    found = machines.probe()
    assert found.slug.startswith(slug)
    assert (found.kind, found.num_devices) == ("cuda", len(boards))
    gpus = machines.environment(found)["gpus"]
    assert [gpu["nvlinks"] for gpu in gpus] == [boards[0].nvlinks] * len(boards)
    assert {gpu["pcie_width"] for gpu in gpus} == {16}


def test_what_a_gpu_does_not_tell_is_none_with_its_reason(install: Install) -> None:
    install(box(GTX, 2))
    environment = machines.environment(machines.probe())
    assert environment["gpus"][1]["ecc"] is None
    assert environment["missing"]["gpus.1.ecc"] == "Not Supported"
    assert environment["gpus"][1]["power_limit_w"] == 250


def test_without_a_driver_everything_of_the_gpus_is_missing_with_one_reason(install: Install) -> None:
    install([])
    found = machines.probe()
    assert found.emulated
    assert "no NVIDIA driver answers" in machines.environment(found)["missing"]["gpus"]


def test_an_nvml_that_fails_half_way_costs_facts_and_nothing_else(install: Install, rule: Rule) -> None:
    install(box(H100, 2), fail_after=20)
    environment = machines.environment(machines.probe())
    assert environment["gpus"][0]["memory_bytes"] == 80 * GIB
    assert environment["gpus"][1]["ecc_uncorrected"] is None
    assert "lost" in environment["missing"]["gpus.1.ecc_uncorrected"]
    timing = measure.rounds({"w": lambda: None}, devices=[], rule=rule)["w"]
    assert timing.state["gpus"][0]["power_w"] is None
    assert timing.joules is None


def test_a_swapped_gpu_or_driver_is_another_platform_and_a_reboot_is_not(install: Install) -> None:
    install(box(A100, 4))
    before = machines.probe().slug
    install(list(box(A100, 4)))
    assert machines.probe().slug == before
    install(box(A100, 4), driver="580.1")
    assert machines.probe().slug != before
    swapped = box(A100, 4)
    swapped[2].uuid = "GPU-new"
    install(swapped)
    assert machines.probe().slug != before


def test_nodes_of_one_kind_are_alike_and_another_kind_is_not(install: Install) -> None:
    install(box(A100, 4))
    label = machines.probe().any_node()
    swapped = [dataclasses.replace(board, uuid=f"GPU-{index}") for index, board in enumerate(box(A100, 4))]
    install(swapped)
    assert machines.probe().fingerprint != label.fingerprint
    assert machines.probe().alike(label).fingerprint == label.fingerprint
    install(box(A100, 4), driver="580.1")
    other = machines.probe().alike(label)
    assert other.fingerprint != label.fingerprint
    assert machines.differences(label, other) == "driver 570.86.10, now 580.1"


def test_hidden_gpus_do_not_count(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(box(H100, 8))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-h100-5")
    assert [gpu.uuid for gpu in nvml.visible_gpus()] == ["GPU-h100-3", "GPU-h100-5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,9,1")
    assert [gpu.uuid for gpu in nvml.visible_gpus()] == ["GPU-h100-0"], "as CUDA, which stops at what is no GPU"


def test_gpus_that_this_pytorch_cannot_use_are_refused_by_name(install: Install) -> None:
    install(box(GTX, 2))
    many = dataclasses.replace(machines.probe(), gpus=["NVIDIA GeForce GTX 1080 Ti"] * 99)
    with pytest.raises(
        ValueError, match=r"^GPU \d+ \(NVIDIA GeForce GTX 1080 Ti, driver 570.86.10\): PyTorch .* cannot"
    ):
        devices.refuse_unusable(many)
    with pytest.raises(settings.InvalidConfig, match="devices = 3: must be at most 2, the GPUs that are here"):
        settings.resolve({**yaml.safe_load((machines.ROOT / "config.yaml").read_text()), "devices": 3}, check=False)


def test_of_many_pairs_of_gpus_the_fastest_and_the_slowest_are_told(
    install: Install, pretend: Callable[..., Result], tmp_path: Path
) -> None:
    """Four links of twelve to each of three others are normal, one is not."""
    install(box(A100, 4))
    result = pretend("copy_cost", bytes=[4096, 65536], memory=["pageable"])
    like = next(r for r in result.records if r.metric == "time" and r.case.get("part") == "matrix")
    pairs = [
        dataclasses.replace(
            like,
            case={**like.case, "direction": f"device {a} to {b}", "memory": "device", "bytes": 2**30},
            samples=[2**30 / ((20e9 if (a, b) == (0, 1) else 80e9) + b * 1e8)] * 12,
            telemetry=[{"count": 12}],
        )
        for a, b in itertools.permutations(range(4), 2)
    ]
    mesh = dataclasses.replace(result, records=pairs)
    text = rendered(mesh, tmp_path)
    assert "It is the slowest of 12." in text
    assert "It is the fastest of 12 pairs." in text
    assert "Device 2 to 1, the best" not in text
    assert {j.verdict for j in normal.judge(mesh) if "Device 0 to 1" not in j.what} == {"normal"}
    assert [j.verdict for j in normal.judge(mesh) if "Device 0 to 1" in j.what] == ["low"]


def test_others_on_the_gpu_are_told_before_measuring_and_refused_when_strict(install: Install) -> None:
    boards = box(H100, 2)
    boards[1].processes = [(1, 3 * GIB), (os.getpid(), GIB)]
    boards[0].utilisation, boards[1].exclusive = 40, True
    install(boards)
    found = preflight.disturbances(cores=1000)
    assert found == [
        "GPU 0 was 40 % busy before the measurement",
        "another process used GPU 1 before the measurement (3072 MiB of its memory)",
        "GPU 1 admits one process at a time, so ranks may fail: `nvidia-smi -c DEFAULT` admits more",
    ]
    with pytest.raises(preflight.Disturbed, match=r"strict = true .*GPU 1"):
        preflight.check(1000, strict=True)


def test_a_busy_cpu_is_told(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install([])
    monkeypatch.setattr(host, "cores_busy", lambda seconds: 3.0)
    assert preflight.disturbances(cores=8) == ["other programs kept 3.0 of 8 cores busy before the measurement"]
    monkeypatch.setattr(host, "cores_busy", lambda seconds: 2.0)
    assert preflight.disturbances(cores=8) == []


def test_a_slowdown_is_marked_and_measured_once_more(install: Install, rule: Rule) -> None:
    boards = box(H100, 1)
    install(boards)
    boards[0].reasons = 0x40
    calls = []

    def work() -> None:
        calls.append(1)

    timing = measure.rounds({"w": work}, devices=[], rule=rule)["w"]
    assert timing.state["measured_again"].startswith("thermal slowdown (hardware) on GPU 0 in 100 %")
    assert timing.state["gpus"][0]["reasons"] == {"thermal slowdown (hardware)": 1.0}
    assert len(calls) >= 2 * len(timing.completion)


def test_the_power_cap_is_reported_and_not_measured_again(install: Install, rule: Rule) -> None:
    boards = box(A100, 1)
    boards[0].reasons = 0x4
    install(boards)
    timing = measure.rounds({"w": lambda: None}, devices=[], rule=rule)["w"]
    assert "measured_again" not in timing.state
    assert timing.state["gpus"][0]["reasons"] == {"power cap": 1.0}


def test_energy_is_counted_a_call_where_the_gpu_counts_it(install: Install, rule: Rule) -> None:
    install(box(H100, 1))
    assert measure.rounds({"w": lambda: None}, devices=[], rule=rule)["w"].telemetry["joules"] == pytest.approx(0.1)
    install(box(GTX, 1))
    assert measure.rounds({"w": lambda: None}, devices=[], rule=rule)["w"].telemetry["joules"] is None


class Inline:
    """An executor that runs in this process, where the fake is."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def __enter__(self) -> "Inline":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *args: Any) -> Any:
        outcome = work(*args)
        return dataclasses.make_dataclass("Done", [], namespace={"result": lambda self: outcome})()


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Result]:
    """Run an experiment as on GPUs, on CPU workers that are called CUDA devices, and load what it saved."""
    monkeypatch.setattr(runner, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr(host, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(devices, "CudaDevice", lambda index: CpuDevice(index, 1))
    monkeypatch.setattr(devices, "refuse_unusable", lambda machine: None)

    def run(name: str, **values: Any) -> Result:
        found = machines.probe()
        path = tmp_path / found.slug / f"{name}.json"
        runner.run(name, block(name, "quick", measure=SHORT, devices=2, **values), found, found.slug, path)
        return schema.load(path)

    return run


@contextlib.contextmanager
def figure_of(result: Result, folder: Path) -> Iterator[Path]:
    from scalecard import sections
    from scalecard.sections import style

    style.save(sections.load(result.experiment).plot([result]), folder / f"{result.experiment}.svg")
    yield folder


def rendered(result: Result, folder: Path) -> str:
    with figure_of(result, folder):
        return " ".join(report.render([result], folder).split())


def test_a_throttle_a_foreign_process_and_a_half_width_link_are_in_the_report_in_words(
    install: Install, pretend: Callable[..., Result], tmp_path: Path
) -> None:
    boards = box(H100, 8)
    boards[0].reasons = 0x20
    boards[0].width = (8, 16)
    boards[1].processes = [(1, 2 * GIB)]
    install(boards)
    result = pretend("copy_cost", bytes=[4096, 65536], memory=["pageable"])
    text = rendered(result, tmp_path)
    assert "measured once more, after thermal slowdown (software) on GPU 0 in 100 % of the samples" in text
    assert "GPU 0: still thermal slowdown (software) in 100 % of the looks" in text
    assert "another process used GPU 1 before the measurement (2048 MiB of its memory)" in text
    assert "GPU 1: other processes held 2 GiB of its memory" in text
    assert "the card can do x16 but runs at x8: reseat it, or look at its slot" in text
    assert "PCIe 5 x8" in text
    assert "8 x NVIDIA H100 80GB HBM3, driver 570.86.10" in text


@pytest.mark.parametrize("boards", [box(A100, 4), box(GTX, 2)])
def test_other_machines_go_the_whole_way_too(
    install: Install, pretend: Callable[..., Result], tmp_path: Path, boards: list[Board]
) -> None:
    install(boards)
    result = pretend("async_timing", size=64, products=2, sizes=[16], dtypes=["float32"])
    assert len(result.environment["gpus"]) == len(boards)
    text = rendered(result, tmp_path)
    assert boards[0].name in text
    assert "No GPU here" not in text


def test_specs_know_the_number_of_processes() -> None:
    with pytest.raises(ValueError, match=r"measure\.processes = 0"):
        specs.build("async_timing", block("async_timing", "quick", measure={**SHORT, "processes": 0}))


def test_recorded_machines_have_a_sheet_of_their_vendor() -> None:
    from scalecard import reference

    for board in (fake_nvml.H100, fake_nvml.A100, fake_nvml.GTX):
        assert reference.gpu_spec(board.name)
