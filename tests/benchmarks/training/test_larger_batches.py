"""A ladder's larger batches on a GPU whose memory is made up: tried until one fails, and compared with what fits."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from scalecard.benchmarks.training import memory_trials
from scalecard.benchmarks.training import tuning as ladders
from scalecard.benchmarks.training.memory_trials import AS_TIMED
from scalecard.benchmarks.training.strategy import Setting
from scalecard.benchmarks.training.tuning import Combination, Ladder, RoundedReferences, plain_loops, subject
from scalecard.benchmarks.training.validate import examined
from scalecard.measuring.case_variant import Subject, Variant
from scalecard.measuring.stopping_rule import Rule
from scalecard.records.axes import combination, rungs_of
from scalecard.records.record import Reason, Record
from scalecard.workloads import nested, reference
from scalecard.workloads.workload import Workload
from support.lone_rank import LoneRank
from support.made_up_gpu import GPU, Gpu, Rank, Timed

CPU = torch.device("cpu")
LOAD = Workload("toy", "", "{}", 100, seed=0)


class Tried:
    """What a ladder finds of batches of 100, 200, ...; plain loops fit up to so many samples."""

    def __init__(self, patch: pytest.MonkeyPatch, rule: Rule, *, plain: int = 10**6, in_float64: float = 200) -> None:
        self.gpu, self.variants, self.compared = Gpu(patch, in_float64=in_float64), list[Variant](), list[bool]()
        self.plain, self.rule = plain, rule
        patch.setattr(ladders, "subject", self._subject)
        patch.setattr(ladders, "plain_loops", self._plain_loops)
        patch.setattr(memory_trials, "time_rounds", self._timed)

    def _subject(
        self, combination: Combination, ctx: Any, references: Any, at: Setting, *, compared: bool = True
    ) -> Subject:
        self.compared.append(compared)
        return self.gpu.build(references, at)

    def _plain_loops(self, combination: Combination, references: Any, at: Setting) -> Subject:
        assert at.workload.device_only, "not the host"
        if at.workload.batch_size > self.plain:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return Subject(work=lambda: None, prove=list)

    def _timed(self, given: list[Variant], **options: Any) -> list[Timed]:
        self.variants += given
        return [Timed(variant) for variant in given]

    def with_factors(self, *factors: int, wanted: tuple[str, ...] = ()) -> dict[str, Record]:
        """The step times without rungs, by what makes their batch larger."""
        rank: Any = Rank()
        made = Ladder(rank, RoundedReferences(GPU, 2), LOAD, (), {"workload": "toy"}, self.rule, wanted, (), factors)
        records = [record for record in made.records() if record.metric == "step_time"]
        return {combination(record.case): record for record in records if not rungs_of(record.case)}


def test_batches_are_tried_until_one_does_not_fit(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Tried(monkeypatch, rule)
    found = tried.with_factors(2, 8, 16, 32)
    assert (found["batch x8"].status, found["batch x8"].note) == ("ok", "")
    assert (found["batch x16"].status, found["batch x16"].note) == ("failed", "CUDA out of memory.")
    skipped = found["batch x32"]
    assert (skipped.status, skipped.note) == ("skipped", "batch x16 failed: out of memory: CUDA out of memory.")
    assert skipped.case["batch_size"] == 3200
    assert max(tried.gpu.tried) == 1600


def test_if_the_largest_fits_its_record_says_that_it_is_the_largest(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Tried(monkeypatch, rule).with_factors(2, 4, 8)
    assert [found[f"batch x{factor}"].note for factor in (2, 4, 8)] == ["", "", ladders.MORE]


def test_a_batch_whose_plain_loop_the_gpu_cannot_hold_is_proven_on_few_samples(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Tried(monkeypatch, rule, plain=300)
    found = tried.with_factors(2, 4, 8)
    assert [found[f"batch x{factor}"].note for factor in (2, 4)] == ["", ladders.ON_FEW]
    assert found["batch x8"].note == f"{ladders.MORE}; {ladders.ON_FEW}"
    of = {variant.name: variant for variant in tried.variants}
    for name, compared in (("batch x2", True), ("batch x4", False)):
        (small,) = of[name].proven_at
        assert (small.workload.exact, small.workload.batch_size) == (True, 2)
        of[name].build(of[name].timed_at)
        assert tried.compared[-1] is compared


def test_what_can_be_compared_with_nothing_is_not_timed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Tried(monkeypatch, rule, plain=300, in_float64=1001).with_factors(2, 4, 8)
    assert (found["float32"].note, found["batch x2"].note) == (AS_TIMED, AS_TIMED)
    assert (found["batch x4"].status, found["batch x4"].note) == ("failed", ladders.UNPROVEN)
    assert found["batch x4"].reason is Reason.OUT_OF_MEMORY, "an error would fail the run"
    assert found["batch x8"].status == "skipped"


def test_the_host_computes_no_plain_loop_that_is_the_devices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    where = list[str]()

    def trained(
        workload: Workload, sizes: Any, num_steps: int, exactly: bool, nudge: float, scored: bool, device: torch.device
    ) -> None:
        where.append(device.type)
        if device == GPU:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Workload, "_trained", trained)
    LOAD.plain(GPU, (4,), 1, exactly=True)
    assert where == ["cuda", "cuda", "cpu"], "the whole batch, and a sample at a time"
    where.clear()
    with pytest.raises(torch.OutOfMemoryError):
        Workload("toy", "", "{}", 4, 0, device_only=True).plain(GPU, (4,), 1, exactly=True)
    assert where == ["cuda", "cuda"]


GPT = Workload(
    "gpt",
    "",
    '{"layers": 1, "width": 8, "heads": 2, "sequence": 4, "vocabulary": 11}',
    8,
    0,
    lr=0.1,
    each=8,
    exact=True,
)


def test_a_loop_that_does_not_fit_at_once_is_computed_in_pieces_before_the_host_computes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In float64 the scores of gpt's 8 pieces of text alone take 3.3 GB, their gradient as much, and so on."""
    whole, train, pieces = GPT.plain(CPU, (8,), 2, exactly=False), reference.train, list[int]()

    def of_two_samples(model: Any, steps: Any, **options: Any) -> reference.Plain:
        pieces.append(max(nested.rows(part.inputs) for part in steps[0]))
        if pieces[-1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return train(model, steps, **options)

    monkeypatch.setattr(reference, "train", of_two_samples)
    divided = GPT.plain(CPU, (8,), 2, exactly=False)
    assert pieces == [8, 2]
    for ours, theirs in zip(divided.after, whole.after, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-14)


def test_batch_normalisation_that_is_trained_sees_its_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So nothing smaller is tried."""
    pieces = list[int]()

    def never(model: Any, steps: Any, **options: Any) -> None:
        pieces.extend(nested.rows(part.inputs) for part in steps[0])
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(reference, "train", never)
    with pytest.raises(torch.OutOfMemoryError):
        Workload("resnet18", "", "{}", 4, 0, each=4).plain(CPU, (4,), 1, exactly=True)
    assert pieces == [4]


@pytest.fixture
def at() -> Setting:
    return Setting(examined(Workload("toy", "", "{}", 4, seed=0), CPU, 2, 1), 1)


@pytest.mark.parametrize("rungs", [(), ("bf16",)], ids=["plain", "rounding"])
def test_what_the_plain_loops_leave_is_kept_for_the_proof(
    rungs: tuple[str, ...], at: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    combination, references, calls = Combination(rungs), RoundedReferences(CPU, 2), list[int]()
    plain: Callable[..., reference.Plain] = Workload.plain
    monkeypatch.setattr(Workload, "plain", lambda *args, **options: (calls.append(1), plain(*args, **options))[1])
    plain_loops(combination, references, at).work()
    looped = len(calls)
    rank: Any = LoneRank()
    assert all(check.passed for check in subject(combination, rank, references, at).prove())
    assert len(calls) == looped > 0


@pytest.mark.parametrize("rungs", [(), ("bf16",)], ids=["plain", "rounding"])
def test_a_step_that_is_not_compared_runs_once_all_the_same(rungs: tuple[str, ...], at: Setting) -> None:
    rank: Any = LoneRank()
    made = partial(subject, Combination(rungs), rank, RoundedReferences(CPU, 2), compared=False)
    timed = made(at)
    before = timed.versions()
    assert [*timed.prove()] == []
    assert timed.updates_since(before) == {1}
