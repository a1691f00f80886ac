"""Models on the meta device: the same values each time, and one line for what nothing initialises."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from scalecard.benchmarks.training import validate
from scalecard.benchmarks.training.validate import NotAWorkload, check
from scalecard.workloads import workload as workloads
from scalecard.workloads.meta import NotInitialised, initialise, is_on_meta, materialised, put_on_meta
from scalecard.workloads.workload import HOST, Workload
from support.projects import ROOT
from torch import Tensor, nn

FILE = f"{ROOT}/tests/benchmarks/training/of_others/without_data.py"


def of_layers(count: int, seed: int = 0, *, exact: bool = False) -> Workload:
    return Workload("without_data", FILE, json.dumps({"layers": count}), 4, seed, exact=exact)


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def test_values_are_the_same_each_time_and_another_seed_gives_others() -> None:
    first, again, other = (values(of_layers(2, seed).network(HOST)) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    drawn = [
        name for name in first if "norm" not in name and name not in ("places", "layers.0.scale", "layers.1.scale")
    ]
    assert not any(torch.equal(first[name], other[name]) for name in drawn)
    assert not torch.equal(first["layers.0.up.weight"], first["layers.1.up.weight"]), "each module has its own seed"


def test_a_value_depends_on_no_other_module() -> None:
    """Which is why a rank may draw them in any order, or a stage only its own."""
    short, long = (values(of_layers(count).network(HOST)) for count in (1, 3))
    assert all(torch.equal(short[name], long[name]) for name in short)


def test_the_whole_model_is_as_its_own_code_initialises_it() -> None:
    model = of_layers(1).network(HOST)
    assert model.out.weight is model.embedding.weight
    assert 0.3 < float(model.out.weight.detach().std()) < 0.7, "0.5, of 42 values"
    assert model.places.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [float(layer.scale) for layer in model.layers] == [0.5]
    assert not model.fixed.weight.requires_grad
    assert model.training
    assert of_layers(1, exact=True).network(HOST).out.weight.dtype == torch.float64
    assert is_on_meta(there := of_layers(1).network(HOST, on_meta=True))
    assert there.out.weight is there.embedding.weight


def test_what_has_data_in_part_is_put_on_meta_with_what_its_modules_share() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model[1].bias = nn.Parameter(torch.empty(3, device="meta"))
    assert put_on_meta(model)[1].weight is model[0].weight
    assert all(parameter.is_meta for parameter in model.parameters())
    assert len(list(model.parameters())) == 3


def test_modules_initialise_themselves_where_the_model_does_not() -> None:
    """A GRU keeps its weights a second time; what has data stays as it is."""
    with torch.device("meta"):
        model = nn.Sequential(nn.GRU(2, 3), nn.BatchNorm1d(3))
    kept = nn.Parameter(torch.full((2,), 7.0))
    model.register_parameter("kept", kept)
    found = materialised(model, 0, HOST)
    assert not is_on_meta(found)
    assert found.kept.tolist() == [7.0, 7.0]
    assert all(0 < float(weight.detach().abs().max()) < 3**-0.5 for weight in found[0].parameters())
    assert found[0](torch.ones(1, 2))[0].shape == (1, 3)
    assert (found[1].running_var.tolist(), int(found[1].num_batches_tracked)) == ([1.0] * 3, 0)


def test_drawing_leaves_the_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    of_layers(1).network(HOST)
    assert torch.equal(torch.get_rng_state(), before)


TEXT = """
import torch
from torch import nn
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(3, 4), nn.Parameter(torch.empty(4))
        self.register_buffer("count", torch.empty(1, dtype=torch.long))
    def forward(self, x): return self.scale * self.linear(x)
    INIT
def model():
    with torch.device("meta"): return Scaled()
def batch(size, seed): return torch.ones(size, 3), torch.zeros(size, 4)
def loss(outputs, targets): return (outputs - targets).square().mean()
"""
TWO_WAYS = "init_weights() of the model or, if it has none, reset_parameters() of each module"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("", "nothing initialises scale, which"),
        ("def reset_parameters(self): self.scale.data.fill_(1)", "nothing initialises count, which"),
        ("def reset_parameters(self): self.scale.data[:3] = 1; self.count.zero_()", "nothing initialises scale, which"),
        (
            "def init_weights(self): self.scale.data.fill_(1); self.count.zero_()",
            "nothing initialises linear.weight, w",
        ),
    ],
)
def test_what_nothing_initialises_is_named_with_the_two_ways(own: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(TEXT.replace("INIT", own))
    workloads.loaded.cache_clear()
    check.cache_clear()
    with pytest.raises(NotAWorkload) as caught:
        check(Workload("mine", str(path), "{}", 4, seed=0))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"workloads.mine.file = {path}: {said}")
    assert TWO_WAYS in line


def test_a_model_too_large_to_be_looked_at_before_is_refused_where_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(TEXT.replace("INIT", ""))
    workloads.loaded.cache_clear()
    check.cache_clear()
    monkeypatch.setattr(validate.psutil, "virtual_memory", lambda: SimpleNamespace(available=0))
    mine = Workload("mine", str(path), "{}", 4, seed=0)
    check(mine)
    with pytest.raises(NotAWorkload, match="nothing initialises scale, which"):
        validate._examined(mine, HOST, 2, 1)


def test_what_initialising_raises_is_one_line_and_what_is_whole_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    for init, said in (("1 / 0", "initialising model() raises line 10: ZeroDivisionError"), ("self.count.zero_()", "")):
        path.write_text(TEXT.replace("INIT", f"def reset_parameters(self): self.scale.data.fill_(1); {init}"))
        workloads.loaded.cache_clear()
        check.cache_clear()
        mine = Workload("mine", str(path), "{}", 4, seed=0)
        if said:
            with pytest.raises(NotAWorkload, match=said.replace("(", r"\(").replace(")", r"\)")):
                check(mine)
        else:
            check(mine)


def test_names_are_those_of_the_model_and_the_model_stays_without_data() -> None:
    model, names = of_layers(1).module.model(layers=1), list[str]()
    initialise(model, 0, lambda name, value: names.append(name) or None)
    assert sorted(names) == sorted(values(model))
    assert all(parameter.is_meta for parameter in model.parameters())


class Masked(nn.Module):
    """Whole numbers and truth values, and in a submodule a table that is replaced."""

    def __init__(self, *, sets_mask: bool = True) -> None:
        super().__init__()
        self.inner, self.sets_mask = nn.Linear(2, 2), sets_mask
        self.inner.register_buffer("table", torch.empty(3))
        self.register_buffer("mask", torch.empty(3, 3, dtype=torch.bool))
        self.register_buffer("steps", torch.empty(2, dtype=torch.uint8))

    def init_weights(self) -> None:
        self.inner.reset_parameters()
        self.inner.table = torch.arange(3.0)
        self.steps.zero_()  # type: ignore[operator]
        if self.sets_mask:
            self.mask.copy_(torch.ones(3, 3).tril())  # type: ignore[operator]


def test_whole_numbers_may_have_any_value_and_a_table_of_a_submodule_may_be_replaced() -> None:
    with torch.device("meta"):
        model = Masked()
    found = materialised(model, 0, HOST)
    assert found.mask.int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]  # type: ignore[operator]
    assert found.steps.tolist() == [0, 0]  # type: ignore[operator]
    assert found.inner.table.tolist() == [0.0, 1.0, 2.0]  # type: ignore[operator]


def test_truth_values_that_nothing_sets_are_named() -> None:
    with torch.device("meta"):
        model = Masked(sets_mask=False)
    with pytest.raises(NotInitialised, match="nothing initialises mask"):
        materialised(model, 0, HOST)


def test_a_model_with_data_is_put_on_meta_with_what_its_modules_share() -> None:
    gru = Workload("gru", f"{ROOT}/tests/benchmarks/training/of_others/gru.py", "{}", 4, seed=0)
    sizes = [sum(p.numel() for p in gru.network(device).parameters()) for device in (HOST, torch.device("meta"))]
    assert sizes[0] == sizes[1]
