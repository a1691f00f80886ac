"""Which errors are recorded, why, and which end the launch."""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from scalecard.distributed.nodes import RankLost
from scalecard.hardware.failures import reason_of
from scalecard.measuring.prepare import caught, guarded
from scalecard.measuring.proof import ProofFailed, Void
from scalecard.records.record import Reason, Record
from support.builders import timed


def records(error: Exception) -> Iterator[Record]:
    """One record, then an error."""
    yield timed([1.0], size=1)
    raise error


def test_what_was_measured_before_stays_and_a_failed_record_follows() -> None:
    before, after = guarded(records(MemoryError("out of memory: 2 GiB")), {"size": 2}, metric="step_time")
    assert before == timed([1.0], size=1)
    assert (after.status, after.case, after.metric, after.unit) == ("failed", {"size": 2}, "step_time", "s")
    assert "2 GiB" in after.note
    assert after.reason is Reason.OUT_OF_MEMORY


def test_another_error_is_raised() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        list(guarded(records(RuntimeError("shapes do not match")), {}))


FAULT = torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered\nCompile with TORCH_USE_CUDA_DSA")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), Reason.OUT_OF_MEMORY),
        (MemoryError(), Reason.OUT_OF_MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), Reason.OUT_OF_MEMORY),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
            Reason.OUT_OF_MEMORY,
        ),
        (RuntimeError("Unable to find an engine to execute this computation"), Reason.OUT_OF_MEMORY),
        (torch.AcceleratorError("CUDA error: out of memory"), Reason.OUT_OF_MEMORY),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), Reason.ERROR),
        (FAULT, Reason.DEVICE_FAULT),
        (Void("void"), Reason.NOT_PROVEN),
        (RankLost("rank 1 was killed"), Reason.LOST),
    ],
)
def test_the_reason_is_told_from_the_error(error: Exception, reason: Reason) -> None:
    assert reason_of(error) is reason


@pytest.mark.parametrize(
    ("error", "said", "on_ranks"),
    [
        (MemoryError("2 GiB"), "2 GiB", True),
        (MemoryError(), "MemoryError", True),
        (ProofFailed("w: differs by 1"), "w: differs by 1", True),
        (Void("w: void"), "w: void", False),
        (FAULT, "CUDA error: uncorrectable ECC error encountered", False),
    ],
)
def test_what_one_rank_may_see_alone_is_recorded_only_where_nobody_waits(
    error: Exception, said: str, on_ranks: bool
) -> None:
    failures: list[tuple[str, Reason]] = []
    with caught(on_failure=lambda *failure: failures.append(failure), alone=True):
        raise error
    assert failures == [(said, reason_of(error))]
    ends = contextlib.nullcontext() if on_ranks else pytest.raises(type(error))
    with ends, caught(on_failure=lambda *failure: failures.append(failure), alone=False):
        raise error
    assert len(failures) == 1 + on_ranks


def test_an_error_without_a_known_reason_is_never_recorded_as_a_failed_case() -> None:
    with pytest.raises(RuntimeError, match="shapes"), caught(on_failure=lambda *_: None, alone=True):
        raise RuntimeError("shapes do not match")
