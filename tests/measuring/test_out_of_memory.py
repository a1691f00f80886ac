"""Out of memory is a result; every other error is not."""

from collections.abc import Iterator

import pytest
import torch
from builders import timed
from scalecard.hardware.gpu_memory import is_out_of_memory
from scalecard.measuring.out_of_memory import guarded
from scalecard.records.record import Record


def records(error: Exception) -> Iterator[Record]:
    """One record, then an error."""
    yield timed([1.0], size=1)
    raise error


def test_what_was_measured_before_stays_and_a_failed_record_follows() -> None:
    before, after = guarded(records(MemoryError("out of memory: 2 GiB")), {"size": 2}, metric="step_time")
    assert before == timed([1.0], size=1)
    assert (after.status, after.case, after.metric, after.unit) == ("failed", {"size": 2}, "step_time", "s")
    assert "2 GiB" in after.note


def test_another_error_is_raised() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        list(guarded(records(RuntimeError("shapes do not match")), {}))


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), True),
        (RuntimeError("Unable to find an engine to execute this computation"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_the_errors_that_mean_out_of_memory(error: Exception, counts: bool) -> None:
    assert is_out_of_memory(error) == counts
