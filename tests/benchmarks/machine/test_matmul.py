"""What the proof of a matrix product sees, and what it costs; and in which dtype devices are loaded."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scalecard.benchmarks.machine import matmul, node_benchmarks
from scalecard.benchmarks.machine.matmul import Products
from scalecard.measuring.stopping_rule import Rule
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

SIZE = 300  # not a multiple of the columns of a sum


def proven(dtype: str, spoil: Callable[[list[Tensor]], object] = bool) -> bool:
    """Whether two products pass, once they are spoilt."""
    x = matmul._matrix(SimpleNamespace(torch=torch.device("cpu")), SIZE, dtype, seed=1)  # type: ignore[arg-type]
    results = matmul._multiply(x, 2, dtype)
    spoil(results)
    checks = list(matmul._checks(x, results, Products(SIZE, 2, dtype)))
    assert len(checks) == 2
    return all(check.passed for check in checks)


def zero(*place: Any) -> Callable[[list[Tensor]], object]:
    def spoil(results: list[Tensor]) -> None:
        results[1][place] = 0

    return spoil


def value(number: float) -> Callable[[list[Tensor]], object]:
    def spoil(results: list[Tensor]) -> None:
        results[0][-1, -1] = number

    return spoil


FAULTS = {
    "the first value": zero(0, 0),
    "a value": zero(140, 170),
    "the last value": zero(-1, -1),
    "a row": zero(-1),
    "a column": zero(slice(None), 128),
    "a tile": zero(slice(64, 128), slice(64, 128)),
    "not a number": value(float("nan")),
    "infinite": value(float("inf")),
    "a flipped exponent": value(2.0**20),
    "the other sign": lambda results: results[0][7, 7].neg_(),
    "all, by a twentieth": lambda results: results[1].mul_(1.05),
    "nothing was computed": lambda results: results[0].zero_(),
    "a product less": lambda results: results.pop(),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_product_is_seen_wherever_it_is_wrong(dtype: str, fault: str) -> None:
    assert proven(dtype)
    assert not proven(dtype, FAULTS[fault])


def test_two_rows_that_are_exchanged_are_seen_in_float32() -> None:
    def exchange(results: list[Tensor]) -> None:
        results[0][[10, 11]] = results[0][[11, 10]]

    assert not proven("float32", exchange)


def test_a_proof_takes_a_fraction_of_a_products_operations() -> None:
    """GPUs for graphics compute 8192 x 8192 in float64 for seconds."""
    at = Products(1024, 4, "float32")
    x = torch.rand(at.size, at.size)
    results = matmul._multiply(x, at.products, at.dtype)
    with FlopCounterMode(display=False) as counter:
        assert all(check.passed for check in matmul._checks(x, results, at))
    assert counter.get_total_flops() < 0.05 * 2 * at.size**3


@pytest.mark.parametrize(
    ("supported", "loaded"), [(("float32", "bfloat16"), "bfloat16"), (("float32",), "float32"), ((), "")]
)
def test_devices_are_loaded_in_a_dtype_that_all_of_them_have(
    rule: Rule, monkeypatch: pytest.MonkeyPatch, supported: tuple[str, ...], loaded: str
) -> None:
    """Of a T4 beside an A100, what the T4 has."""
    t4, a100, tried = SimpleNamespace(index=0), SimpleNamespace(index=1), list[Any]()

    def unsupported(dtype: str, device: Any) -> str:
        return "" if device is a100 or dtype in supported else f"{dtype} needs another GPU"

    monkeypatch.setattr(node_benchmarks.matmul, "unsupported", unsupported)
    monkeypatch.setattr(node_benchmarks, "round_records", lambda variants, **options: tried.extend(variants) or [])
    amounts = {"size": 8, "products": 1, "link_bytes": [], "load_seconds": 0.0, "memory_bytes": 4096, "data_dir": ""}
    of: Any = SimpleNamespace(measure=rule, seed=0, dtypes=("float32", "bfloat16"), **amounts)
    devices: list[Any] = [t4, a100]
    records = list(node_benchmarks._load(of, devices))
    assert {variant.case["dtype"] for variant in tried} == ({loaded} if loaded else set())
    assert [record.note for record in records] == ([] if loaded else ["bfloat16 needs another GPU"])
