"""What differs from the plain loop is refused before it is timed, and a proof that proves nothing as well."""

import contextlib
import math
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scalecard.measuring import proof
from scalecard.measuring.proof import (
    NUDGE,
    VOID,
    Change,
    ProofFailed,
    Trained,
    agreed,
    change,
    checksum,
    compressed,
    expected,
    refuse_failed,
    same_change,
    same_gradients,
    same_parameters,
    same_replicas,
    same_values,
)
from scalecard.measuring.shared_decisions import ALONE
from scalecard.records.record import Check
from scalecard.workloads.reference import Plain
from torch import Tensor

ZEROS, ONES = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
NAN, INFINITE = float("nan"), float("inf")


def plain(after: Tensor, before: Tensor = ZEROS, losses: tuple[float, float] = (2.0, 1.0)) -> Plain:
    return Plain([before], [after], [], losses)


def with_last(value: float) -> Tensor:
    return torch.tensor([1.0, 1.0, value], dtype=torch.float64)


@pytest.mark.parametrize("difference", [1e-3, NAN, INFINITE])
def test_a_difference_beyond_the_tolerance_is_refused_on_every_rank(difference: float) -> None:
    class Ranks:
        """Another rank saw the difference."""

        def maximum(self, values: Sequence[float]) -> list[float]:
            return [max(value, difference if difference == difference else INFINITE) for value in values]

    good, bad = (Check(name="w", dtype="float64", difference=d, tolerance=1e-10) for d in (0.0, difference))
    refuse_failed(agreed([good], ALONE))
    for checks, ranks in (([bad], ALONE), ([good], Ranks())):
        with pytest.raises(ProofFailed, match=r"w \(float64\): differs by .*1e-10"):
            refuse_failed(agreed(checks, ranks))


@pytest.mark.parametrize("wrong", [with_last(1 + 1e-6), with_last(NAN), with_last(INFINITE), ONES[:1], ONES[:2]])
def test_a_wrong_or_missing_value_fails_wherever_it_stands(wrong: Tensor) -> None:
    """[z, nan] against [z, z] and (1,) against (3,) once passed."""
    for ours, reference in ((wrong, ONES), (ONES, wrong)):
        assert not same_values("sum", ours, reference).passed
        assert not same_parameters("w", [ONES, ours], Plain([], [ONES, reference], [], (2, 1))).passed
        with contextlib.suppress(ProofFailed):
            assert not same_gradients("g", [ours], [reference], [reference]).passed
        assert not same_change("w", [ours * 0], [ours], Change([reference.float()], 1e-8)).passed


def test_bytes_are_compared_as_numbers() -> None:
    ours, reference = torch.tensor([0], dtype=torch.uint8), torch.tensor([255], dtype=torch.uint8)
    assert same_values("bytes", ours, reference).difference == 255


def test_rounding_passes_for_parameters_and_not_for_values() -> None:
    assert 0 < same_parameters("w", [ONES + 1e-12], plain(ONES)).difference < 1e-11
    assert same_parameters("w", [ONES + 1e-12], plain(ONES)).passed
    assert not same_values("sum", ONES + 1e-12, ONES).passed


def test_buffers_are_compared_too() -> None:
    trained = Plain([ZEROS], [ONES], [ONES], (2, 1))
    assert same_parameters("w", [ONES, ONES], trained).passed
    assert not same_parameters("w", [ONES, ZEROS], trained).passed


@pytest.mark.parametrize(
    ("trained", "why"),
    [
        (plain(ZEROS), "changed by 0 only"),
        (plain(ZEROS + 1e-5), "changed by 1e-05 only"),
        (plain(with_last(NAN)), "changed by inf"),
        (plain(ONES, losses=(2.0, 2.0)), "loss went from 2 to 2"),
        (plain(ONES, losses=(2.0, NAN)), "loss"),
    ],
)
def test_a_proof_in_which_nothing_moved_is_void(trained: Plain, why: str) -> None:
    with pytest.raises(ProofFailed, match=f"void.*{why}"):
        expected("w", lambda exactly, scored: trained, exact=True)


def test_as_timed_the_tolerance_is_three_times_the_plain_loops_rounding() -> None:
    wanted = expected("w", lambda exactly, _nudge=0.0: plain(ONES if exactly else ONES * 1.01), exact=False)
    assert isinstance(wanted, Change)
    assert wanted.tolerance == pytest.approx(0.03)
    assert same_change("w", [ZEROS], [ONES * 1.01 * 1.029], wanted).passed
    assert not same_change("w", [ZEROS], [ONES * 1.01 * 1.031], wanted).passed
    assert not same_change("w", [ZEROS], [ONES / 2], wanted).passed, "half of the gradients"


def test_where_units_open_and_shut_the_tolerance_is_the_largest_of_five_runs() -> None:
    """By rounding alone, and otherwise in every run: each begins parts in a million apart."""
    began = list[float]()

    def step(exactly: bool, nudge: float = 0.0) -> Trained:
        began.append(nudge)
        return plain(ONES if exactly else ONES * (1.03 if nudge == 2 * NUDGE else 1.001))

    wanted = expected("w", step, exact=False)
    assert isinstance(wanted, Change)
    assert same_change("w", [ZEROS], [ONES * 1.003], wanted).tolerance == pytest.approx(0.003)
    assert began == [0.0, 0.0], "one step is enough for one that is near"
    far = same_change("w", [ZEROS], [ONES * 1.05], wanted)
    assert far.passed
    assert far.tolerance == pytest.approx(0.09)
    assert began[2:] == [0.0, *(run * NUDGE for run in (1, 2, 3, 4))]
    assert not same_change("w", [ZEROS], [ONES * 1.1], wanted).passed
    assert len(began) == 7, "once"
    gradients = [[ONES / 2], [ONES / 2]]
    assert same_change("w", [ZEROS], [ONES * 1.05], compressed("w", wanted, gradients, torch.float16)).passed


def test_without_rounding_the_tolerance_is_ten_units_in_the_last_place() -> None:
    single = plain(ONES.float(), ZEROS.float())
    assert change("w", single, single).tolerance == pytest.approx(10 * 2**-23)


def test_a_tolerance_that_could_hide_half_of_the_gradients_is_void() -> None:
    with pytest.raises(ProofFailed, match="void, rounding alone"):
        change("w", plain(ONES * 1.2), plain(ONES))


@pytest.mark.parametrize(("dtype", "unit_roundoff"), [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)])
def test_compression_may_round_every_ranks_gradient_and_no_more(dtype: torch.dtype, unit_roundoff: float) -> None:
    """Two ranks that add 1/2 each: squares of two roundings of each half, and of one of their sum; three times that.

    A halved gradient is far beyond.
    """
    wanted = compressed("w", change("w", plain(ONES), plain(ONES)), [[ONES / 2], [ONES / 2]], dtype)
    assert wanted.tolerance == pytest.approx(3 * unit_roundoff * (2 * 2 / 4 + 1) ** 0.5, rel=1e-3)
    assert same_change("w", [ZEROS], [ONES * (1 + 2 * unit_roundoff)], wanted).passed
    assert not same_change("w", [ZEROS], [ONES / 2], wanted).passed


def test_opposite_gradients_may_lose_more_to_compression() -> None:
    """0.75 and -0.25 add up to 0.5, which is less than either square root of what their squares add up to."""
    shares = [[0.75 * ONES], [-0.25 * ONES]]
    wanted = compressed("w", change("w", plain(ONES / 2), plain(ONES / 2)), shares, torch.float16)
    squares = 0.75**2 + 0.25**2
    assert wanted.tolerance == pytest.approx(3 * 2**-11 * (2 * squares + squares) ** 0.5 / 0.5, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ranks", [2, 64, 1024])
def test_compression_among_many_ranks_stays_within_its_tolerance_and_is_not_void(
    ranks: int, dtype: torch.dtype
) -> None:
    """As the hook and a ring do it: convert, divide, and add one rank after the other."""
    generator = torch.Generator().manual_seed(ranks)
    signal = 0.05 * torch.randn(20_000, generator=generator)
    gradients = [signal + 0.5 * torch.randn(20_000, generator=generator) for _ in range(ranks)]
    mean = torch.stack(gradients).double().mean(0)
    wanted = compressed("w", Change([mean], 0.0), [[g / ranks] for g in gradients], dtype)
    assert wanted.tolerance < VOID
    total = torch.zeros(20_000, dtype=dtype)
    for gradient in gradients:
        total += gradient.to(dtype).div_(ranks)
    found = same_change("w", [torch.zeros(20_000)], [total.double()], wanted)
    assert found.passed, f"{found.difference} of {found.tolerance}"
    assert found.difference > wanted.tolerance / 100, "the tolerance means something"


def test_changes_are_compared_tensor_by_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large model, lists in float64 would be gigabytes on the host, for each of eight ranks."""
    double, made, most = torch.Tensor.double, list[weakref.ref[Tensor]](), 0

    def counted(tensor: Tensor) -> Tensor:
        nonlocal most
        made.append(weakref.ref(wide := double(tensor)))
        most = max(most, sum(one() is not None for one in made))
        return wide

    before, after = ([torch.full((3,), float(value)) for _ in range(20)] for value in (1, 3))
    monkeypatch.setattr(torch.Tensor, "double", counted)
    loop = Plain(before, after, [], (2, 1))
    wanted = change("w", loop, loop)
    assert same_change("w", before, after, wanted).difference == 0
    assert same_gradients("g", after, after, after).difference == 0
    assert len(made) >= 20
    assert most <= 8


def test_large_tensors_are_compared_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same outcome: a difference in the last row, another shape, a single number, compressed gradients."""
    before, grown = [torch.zeros(10, 3), torch.tensor(0.0)], [torch.ones(10, 3), torch.tensor(1.0)]
    wrong, turned = [torch.ones(10, 3), torch.tensor(1.0)], [torch.ones(3, 10), torch.tensor(1.0)]
    wrong[0][9, 2] = 2.0
    loop = Plain(before, grown, [], (2, 1))

    def found() -> list[float]:
        wanted = change("w", loop, loop)
        compression = compressed("w", wanted, [[t / 2 for t in grown]] * 2, torch.float16)
        differences = [same_change("w", before, after, wanted).difference for after in (grown, wrong)]
        return [*differences, same_change("w", turned, turned, wanted).difference, compression.tolerance]

    whole = found()
    assert whole[:3] == [0.0, pytest.approx(1 / math.sqrt(31)), math.inf]
    monkeypatch.setattr(proof, "CHUNK", 4)
    assert found() == pytest.approx(whole)


@pytest.mark.parametrize("change_of", [lambda t: t + 1e-7, lambda t: t.flip(0), lambda t: t * 0])
def test_a_checksum_sees_any_bit_and_any_order(change_of: Any) -> None:
    tensor = torch.tensor([0.5, 1.0, 1.5])
    assert checksum([tensor, ONES]) == checksum([tensor.clone(), ONES.clone()])
    assert checksum([change_of(tensor), ONES]) != checksum([tensor, ONES])
    assert checksum([ONES, tensor]) != checksum([tensor, ONES])


def test_replicas_must_be_the_same_bit_for_bit() -> None:
    assert same_replicas([[ONES], [ONES.clone()]]).passed
    assert not same_replicas([[ONES], [ONES], [ONES + 1e-15]]).passed


@pytest.mark.parametrize(
    ("ranks", "norms", "roundings"),
    [(1, math.sqrt(2) * 0.25, 2), (2, math.hypot(0.25, 0.25), 5)],
)
def test_what_compression_may_change_by_hand(ranks: int, norms: float, roundings: int) -> None:
    """Four values of 2^-3 in all, in float16: a unit roundoff is 2^-11, half the spacing of the smallest 2^-25."""
    shares = [[torch.full((4,), 2.0**-3 / ranks)] for _ in range(ranks)]
    wanted = compressed("w", Change([torch.full((4,), 1.0)], 0.0), shares, torch.float16)
    assert wanted.tolerance == pytest.approx(3 * (2**-11 * norms + 2**-25 * math.sqrt(4 * roundings)) / 0.25, rel=1e-6)
