"""A workload is a plain file: what is wrong with one is said in one line, and what is right is trained as it says."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from scalecard import experiments
from scalecard.benchmarks.training import validate
from scalecard.benchmarks.training.validate import (
    NotAWorkload,
    check,
    check_functions,
    check_values,
    examined,
    recipe_problem,
)
from scalecard.measuring import shared_decisions
from scalecard.workloads import builtin
from scalecard.workloads import workload as loads
from scalecard.workloads.modules import BUILT_IN
from scalecard.workloads.nested import leaves
from scalecard.workloads.recipe import Recipe
from scalecard.workloads.workload import Workload, _built_in, built_in
from support.blocks import block
from support.projects import ROOT

HOST = torch.device("cpu")
TRAINING = ("strategies", "input", "tuning")
GOOD = """
import torch
from torch import nn
def model(width=4): return nn.Linear(3, width)
def batch(size, seed): return torch.ones(size, 3), torch.zeros(size, 4)
def loss(outputs, targets): return (outputs - targets).square().mean()
"""
SMALL = {
    "gpt": {"layers": 2, "width": 8, "heads": 2, "sequence": 4, "vocabulary": 11},
    "resnet50": {"image_size": 32, "num_classes": 3},
}


def written(folder: Path, text: str, name: str = "mine", **values: object) -> Workload:
    """A load of a file with this text."""
    path = folder / f"{name}.py"
    path.write_text(text)
    loads.loaded.cache_clear()
    check.cache_clear()
    return Workload(name, str(path), json.dumps(values), 4, seed=0)


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_a_function_that_says_nothing_of_its_arguments_is_believed(tmp_path: Path) -> None:
    check_functions(written(tmp_path, GOOD + "loss = max\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + "\nraise KeyError('weights')\n", "line 8: KeyError: 'weights'"),
        (GOOD + "\ndef (\n", "line 8: SyntaxError"),
        (changed("def loss", "def lost"), "has no function loss; required: model(), batch(size, seed), loss("),
        (changed("def batch(size, seed)", "def batch(size)"), "batch does not take 2 arguments"),
        (GOOD + "\nUNIT = 'words'\n", "UNIT = 'words': must be one of samples, tokens"),
        (changed("return nn.Linear(3, width)", "return [1]"), "model() returns a list; it must return a torch.nn"),
        (changed("nn.Linear(3, width)", "nn.ReLU()"), "no parameter that requires a gradient"),
        (changed("return torch.ones(size, 3), torch.zeros(size, 4)", "return torch.ones(size, 3)"), "returns a Tensor"),
        (changed("torch.zeros(size, 4)", "torch.zeros(4)"), "targets of shape (4,), which cannot be split"),
        (changed("torch.ones(size, 3)", "None"), "no tensor in the inputs"),
        (changed(".mean()", ""), "returns a tensor of shape (2, 4); it must return the mean, a scalar tensor"),
        (changed("(outputs - targets).square().mean()", "1.0"), "returns a float; it must return the mean"),
        (changed(".mean()", ".mean() / 0"), "the loss of a new model is inf; it must be finite"),
        (changed("(outputs - targets)", "outputs.detach()"), "the loss does not depend on any parameter"),
        (changed("(outputs - targets)", "(outputs - targets @ 3)"), "raises line 6: TypeError"),
        (
            GOOD + "\nold = model\n"
            "def model():\n    m = old()\n    m.spare = nn.Parameter(torch.ones(2))\n    return m\n",
            "no gradient reaches spare; use them, remove them, or set requires_grad_(False)",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_line_with_its_key(text: str, said: str, tmp_path: Path) -> None:
    workload = written(tmp_path, text)
    with pytest.raises(NotAWorkload) as caught:
        check(workload)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"workloads.mine.file = {workload.file}: ")
    assert said in line


ITEMS = """
class Items(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return torch.ones(3), torch.zeros(4)
def dataset(): return Items()
"""


OWN, BLOCKS = Recipe("own"), Recipe(checkpointing="blocks")
UNCALLED = """
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 4)
    def forward(self, x):
        return nn.functional.linear(x, self.inner.weight, self.inner.bias)
def model():
    return Outer()
"""


@pytest.mark.parametrize(
    ("recipe", "more", "said"),
    [
        (OWN, "", "recipe.optimizer = own: the file has no function optimizer(parameters)"),
        (OWN, "def optimizer(p): return [p]", "optimizer(parameters) returns a list; it must return a torch.optim"),
        (OWN, "def optimizer(p): return torch.optim.SGD(p[:1])", "optimizer(parameters) leaves out 1 of them"),
        (OWN, "def optimizer(p): return torch.optim.Nothing(p)", "optimizer(parameters) raises line 8: AttributeError"),
        (
            OWN,
            "def optimizer(p): return torch.optim.SGD(p, lr=0.0)",
            "ValueError: the learning rate of its first group",
        ),
        (BLOCKS, "def blocks(m): return [nn.Sequential(m)]", "blocks: the model calls 0 of 0 blocks that it has"),
        (
            BLOCKS,
            UNCALLED,
            "the model calls 0 of 1 blocks that it has; blocks(model) must return modules that it calls",
        ),
    ],
)
def test_what_a_file_lacks_for_its_recipe_is_said(recipe: Recipe, more: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(NotAWorkload) as caught:
        check(replace(written(tmp_path, f"{GOOD}\n{more}\n"), recipe=recipe))
    (line,) = str(caught.value).splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Items()", "1 / 0", "dataset() raises line 11: ZeroDivisionError"),
        ("Items()", "iter([])", "returns a list_iterator; it must return a map-style torch.utils.data.Dataset"),
        ("torch.ones(3),", "{}['x'],", "putting together dataset()[0] and dataset()[1] raises line 10: KeyError: 'x'"),
        ("return torch.ones(3), torch.zeros(4)", "return torch.ones(3)", "is a Tensor; it must be (inputs, targets)"),
        (
            "torch.ones(3),",
            "torch.ones(5).double(),",
            "two items of dataset() have inputs float64 (2, 5), and batch(2, seed) has float32 (2, 3)",
        ),
        ("zeros(4)", "zeros(4, dtype=int)", "have targets int64 (2, 4), and batch(2, seed) has float32 (2, 4)"),
        ("def dataset(): return Items()", "dataset = Items()", "dataset is no function; it must be one that returns"),
    ],
)
def test_what_is_wrong_with_a_data_set_is_one_line_too(old: str, new: str, said: str, tmp_path: Path) -> None:
    check(written(tmp_path, GOOD + ITEMS))
    workload = written(tmp_path, GOOD + ITEMS.replace(old, new))
    with pytest.raises(NotAWorkload) as caught:
        check(workload)
    (line,) = str(caught.value).splitlines()
    assert said in line


def test_values_may_be_the_data_sets_alone(tmp_path: Path) -> None:
    check_functions(written(tmp_path, GOOD + ITEMS.replace("dataset()", "dataset(many=4)"), many=3))
    with pytest.raises(NotAWorkload, match=r"neither model.. nor batch.. nor dataset.. takes most; known: .* many"):
        check_functions(written(tmp_path, GOOD + ITEMS.replace("dataset()", "dataset(many=4)"), most=3))


def test_a_value_that_no_function_takes_is_named_with_those_that_are_taken(tmp_path: Path) -> None:
    with pytest.raises(NotAWorkload, match=r"neither model.. nor batch.. takes wdith; known: batch_size, width"):
        check_functions(written(tmp_path, GOOD, wdith=3))
    check_functions(written(tmp_path, GOOD, width=4))


@pytest.mark.parametrize(
    "text",
    [
        "import not_installed\n" + GOOD,
        changed("def model(width=4): return", "def model():\n    import not_installed.part\n    return"),
    ],
    ids=["at the top", "in model()"],
)
def test_a_package_that_is_missing_is_named_unless_the_image_may_have_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCALECARD_PACKAGES_IN_IMAGE", raising=False)
    workload = written(tmp_path, text)
    with pytest.raises(
        NotAWorkload, match=r"line \d: ModuleNotFoundError: No module named 'not_installed'; .*packages"
    ):
        check(workload)
    monkeypatch.setenv("SCALECARD_PACKAGES_IN_IMAGE", "1")
    check(workload)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import beside_mine.no_such_part\n" + GOOD, "No module named 'beside_mine.no_such_part'"),
        ("from beside_mine import no_such_name\n" + GOOD, "ImportError"),
        (changed("def loss", "def lost"), "has no function loss"),
    ],
)
def test_what_no_image_can_have_is_refused_all_the_same(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALECARD_PACKAGES_IN_IMAGE", "1")
    (tmp_path / "beside_mine.py").touch()
    for looks in (check_functions, check):
        with pytest.raises(NotAWorkload, match=said) as caught:
            looks(written(tmp_path, text))
        assert "container.packages" not in str(caught.value)


def test_a_file_is_looked_at_once_for_all_experiments(tmp_path: Path) -> None:
    """Its model is made twice: without data, to see how large it is, and on the host."""
    where = "made.append(str(torch.empty(0).device)); return nn."
    workload = written(tmp_path, changed("return nn.", where) + "made = []\n")
    blocks = {name: block(name, workloads={"mine": {"file": workload.file, "batch_size": 4}}) for name in TRAINING}
    assert experiments.problems({"full": blocks}) == []
    assert workload.module.made == ["meta", "cpu"]


def test_a_configuration_may_name_each_built_in_workload() -> None:
    assert set(builtin.NAMES) == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_workloads_are_ones(name: str) -> None:
    check_values(Workload(name, "", json.dumps(SMALL.get(name, {})), 2, seed=0))


def test_a_file_imports_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "aside_of_mine.py").write_text("WIDTH = 4\n")
    text = changed("width=4", "width=WIDTH")
    workload = written(tmp_path, "from aside_of_mine import WIDTH\n" + text)
    check(workload)
    assert workload.module.WIDTH == 4


def test_the_same_seed_draws_the_same_model_and_the_same_batch_and_leaves_others_random_numbers_alone() -> None:
    workload = Workload("resnet18", "", "{}", 2, seed=3)
    torch.manual_seed(1)
    first, expected = workload.network(HOST), torch.initial_seed()
    torch.rand(1)
    for a, b in zip(first.parameters(), workload.network(HOST).parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.initial_seed() == expected
    assert all(
        torch.equal(a, b) for a, b in zip(leaves(workload.batch(2, HOST)), leaves(workload.batch(2, HOST)), strict=True)
    )


def test_a_value_that_only_batches_take_makes_no_other_model() -> None:
    _built_in.cache_clear()
    for size in (32, 64):
        built_in("resnet26_quarter", seed=1, image_size=size).network(HOST)
    assert _built_in.cache_info().misses == 1


def test_the_shares_of_ranks_are_the_batch() -> None:
    workload = Workload("resnet18", "", "{}", 4, seed=3)
    own = [workload.of_rank(rank, 2) for rank in range(2)]
    assert [each.batch_size for each in own] == [2, 2]
    shares = [list(leaves(each.batch(each.batch_size, HOST))) for each in own]
    for whole, *parts in zip(leaves(workload.batch(4, HOST)), *shares, strict=True):
        assert torch.equal(whole, torch.cat(parts))


def test_a_rate_is_found_at_which_three_steps_lower_the_loss(tmp_path: Path) -> None:
    steep = written(tmp_path, changed(".mean()", ".mean() * 300"))
    found = examined(steep, HOST, 3, 2)
    assert 0 < found.lr < 0.03, "at 0.03 it would overshoot"
    first, last = replace(found, lr=9 * found.lr).plain(HOST, (found.batch_size,), 1, False, scored=True).losses
    assert last < first, "it is a tenth of one that lowers the loss"
    assert (found.inexact, found.frozen) == (False, False)


def test_a_run_looks_at_a_workload_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared_decisions.FOLDER, str(tmp_path))
    steep = written(tmp_path, changed(".mean()", ".mean() * 300"))
    first = examined(steep, HOST, 3, 2)
    monkeypatch.setattr("scalecard.benchmarks.training.validate._rate", lambda *_: pytest.fail("looked again"))
    assert examined(steep, HOST, 3, 2) == first


def test_a_rate_that_float64_needs_may_move_little_as_timed(tmp_path: Path) -> None:
    """As ResNet-50's: batch normalisation keeps what is timed small, and the proof in float64 is without it."""
    two = "nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, width))"
    text = changed("nn.Linear(3, width)", two)
    text = text.replace("torch.ones(size, 3)", "torch.arange(30.0, 30 + 90 * size, 30).view(size, 3)")
    assert 0 < examined(written(tmp_path, text), HOST, 3, 2).lr < 1e-3


def test_dropout_is_noticed_and_so_is_a_model_that_cannot_compute_in_float64(tmp_path: Path) -> None:
    drops = written(tmp_path, changed("nn.Linear(3, width)", "nn.Sequential(nn.Linear(3, width), nn.Dropout())"))
    assert examined(drops, HOST, 3, 2).frozen
    text = changed("return nn.Linear(3, width)", "return Halves()").replace(
        "def model",
        "class Halves(nn.Linear):\n    def __init__(self): super().__init__(3, 4)\n"
        "    def forward(self, x): return super().forward(x.float())\ndef model",
    )
    found = examined(written(tmp_path, text, name="halves"), HOST, 3, 2)
    assert found.inexact
    assert found.lr > 0


def test_a_model_that_no_rate_trains_is_refused(tmp_path: Path) -> None:
    flat = written(tmp_path, changed("(outputs - targets).square().mean()", "0 * outputs.mean()"))
    with pytest.raises(NotAWorkload, match="lower the loss at no learning rate from 1 to 3e-6"):
        examined(flat, HOST, 3, 2)


def test_values_that_a_built_in_model_cannot_have_are_refused() -> None:
    odd = Workload("gpt", "", json.dumps({"width": 8, "heads": 3}), 2, seed=0)
    with pytest.raises(NotAWorkload, match=r"workloads.gpt: model.* raises ValueError: heads = 3: must divide"):
        check(odd)


def test_what_is_wrong_with_one_is_said_once_however_many_experiments_train_it(tmp_path: Path) -> None:
    path = written(tmp_path, changed("def loss", "def lost")).file
    values = {"workloads": {"mine": {"file": path, "batch_size": 2}}}
    blocks = {name: block(name, "full", **values) for name in ("strategies", "input")}
    (line,) = experiments.problems({"full": blocks, "quick": blocks})
    assert line.startswith(f"workloads.mine.file = {path}: has no function loss")


def test_the_files_of_the_readme_are_workloads(tmp_path: Path) -> None:
    """At a smaller size: what it draws, though it ignores the seed, is the same each time."""
    (text,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    workload = written(tmp_path, text)
    check_functions(workload)
    first, second = (workload.batch(2, HOST) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(leaves(first), leaves(second), strict=True))
    assert [tuple(leaf.shape) for leaf in leaves(first)] == [(2, 3, 224, 224), (2,)]


def test_a_model_that_the_host_can_hardly_train_is_looked_at_where_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is, in any case; to make 8 billion parameters would get the process killed. One that fits is trained."""
    whole = Workload("llama", f"{ROOT}/examples/llama.py", "{}", 2, seed=0)
    monkeypatch.setattr(validate.psutil, "virtual_memory", lambda: SimpleNamespace(available=16 * 2**30))
    check.cache_clear()
    check(whole)
    with pytest.raises(NotAWorkload, match="takes depth"):
        check(replace(whole, values='{"depth": 3}'))
    with pytest.raises(NotAWorkload, match="the loss of a new model is nan"):
        check(written(tmp_path, GOOD.replace(".mean()", ".mean() * float('nan')")))


def test_a_result_that_is_kept_and_then_changed_in_place_is_refused_with_the_cause(tmp_path: Path) -> None:
    """As of a convolution before an in-place ReLU; whole blocks can be computed again all the same."""
    module = "nn.Sequential(nn.Sequential(nn.Linear(3, 8), nn.ReLU(inplace=True), nn.Linear(8, 4)))"
    file = changed("return nn.", f"return {module} if True else nn.")
    made = written(tmp_path, file)
    for how, refused in (("blocks", False), ("selective", True)):
        found = replace(made, recipe=Recipe(checkpointing=how))
        problem = recipe_problem(found, found.as_reference.network(HOST), found.batch(2, HOST))
        assert ("must not be changed in place" in problem) == refused
