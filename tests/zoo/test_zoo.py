"""A tenth of the zoo (run.py), and what is said of models that cannot be measured."""

import pytest
from scalecard.benchmarks.training.not_a_workload import NotAWorkload
from scalecard.benchmarks.training.validate import check, examined
from scalecard.workloads.workload import HOST, Workload
from support.projects import ROOT

from zoo.run import outcome

MODELS = ROOT / "tests/zoo/models"
DATA_PARALLEL = {"DDP", "FSDP gradients", "FSDP parameters"}
PIPELINES = {"model parallel", "our gpipe", "our 1f1b", "torch gpipe", "torch 1f1b"}

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named from the project's folder."""
    monkeypatch.chdir(ROOT)


def mine(name: str) -> Workload:
    return Workload(name, f"{MODELS}/{name}.py", "{}", 8, seed=0)


@pytest.mark.workflow
@pytest.mark.parametrize(
    ("name", "measured", "said"),
    [
        ("padded_language_model", DATA_PARALLEL, "its loss is no mean over samples: averaged over what is forwarded"),
        ("complex_parameters", DATA_PARALLEL | PIPELINES, ""),
        ("sparse_embedding", {"DDP"} | PIPELINES, ""),
        ("teacher", DATA_PARALLEL, ""),
        ("reentrant", DATA_PARALLEL, ""),
    ],
)
def test_a_model_is_measured_by_what_suits_it(name: str, measured: set[str], said: str) -> None:
    found = outcome(MODELS / f"{name}.py")
    assert set(found.measured) >= measured
    assert not [record.note for record in found.steps if record.status == "failed"]
    assert found.note("DDP").startswith(said)
    if name == "reentrant":
        assert not PIPELINES & set(found.measured)
        assert found.note("our gpipe").startswith("its forward checkpoints its blocks, which stages would leave out")


@pytest.mark.workflow
def test_a_rank_that_fails_alone_costs_its_strategy_alone_and_its_error_is_recorded() -> None:
    found = outcome(MODELS / "one_rank_fails.py")
    assert set(found.measured) >= DATA_PARALLEL | {"our gpipe"}
    (gpipe,) = [record for record in found.steps if record.case["strategy"] == "torch gpipe"]
    assert (gpipe.status, gpipe.note) == ("failed", "of 2 ranks, rank 1 failed: ValueError: two rows are odd")
    assert found.seconds < 120, "the other rank is not waited for until the timeout"


def test_a_model_that_draws_in_eval_mode_is_told_where_to_draw() -> None:
    with pytest.raises(NotAWorkload, match=r"no proof can tell; draw random numbers if self\.training alone"):
        examined(mine("random_in_eval"), HOST, 2, 2)


def test_a_model_that_is_compiled_is_told_of_the_recipe() -> None:
    with pytest.raises(NotAWorkload, match=r"calls torch\.compile; .* set recipe\.compile = true"):
        check(mine("compiled_inside"))


def test_a_model_without_a_loss_in_eval_mode_is_offered_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = mine("detection")
    assert not examined(detector, HOST, 2, 2).inexact
    monkeypatch.delattr(detector.module, "TRAINING")
    with pytest.raises(NotAWorkload, match="works in training mode and not in eval mode; write TRAINING = True"):
        examined(detector, HOST, 2, 2)


def test_idle_experts_are_told_of_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    check(mine("idle_experts"))
    monkeypatch.delattr(mine("idle_experts").module, "FIND_UNUSED_PARAMETERS")
    check.cache_clear()
    with pytest.raises(NotAWorkload, match="write FIND_UNUSED_PARAMETERS = True in the file"):
        check(mine("idle_experts"))


@pytest.mark.parametrize(("name", "units"), [("module_lists", 6), ("some_blocks", 4)])
def test_lists_of_modules_are_sharded_element_by_element(name: str, units: int) -> None:
    workload = mine(name)
    model = workload.network(HOST)
    assert len(workload.wrappable_blocks(model)) == units


def test_the_loss_of_padded_sentences_is_seen_to_be_no_mean() -> None:
    assert examined(mine("padded_language_model"), HOST, 2, 2).no_mean
    assert not examined(mine("module_lists"), HOST, 2, 2).no_mean
