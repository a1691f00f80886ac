"""Proven before timed: a parallel strategy must compute what a plain PyTorch loop computes.

Parameters are compared twice. In float64, after several steps, they must be equal but for rounding. As timed, the
change of one step must be that of the plain loop within a tolerance that is derived: a multiple of how far the plain
loop in this dtype is from the one in float64 that adds up the same samples in the opposite order, or the farthest of
several such loops.
"""

import functools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest
from typing import Any, Protocol

import torch
from torch import Tensor

from scalecard import progress
from scalecard.measuring.case_variant import Subject, Work, local
from scalecard.measuring.shared_decisions import Ranks
from scalecard.measuring.timer import Synchronised
from scalecard.records.record import Check, Reason

TOLERANCE = 1e-10  # float64, several steps: rounding in another order costs about 1e-16 per step
RUNS, NUDGE = 5, 2**-20  # plain steps as timed that a tolerance may be derived from, and how far they start apart
EXACT = (torch.float64, torch.complex128)
MOVED = 1e6  # times the tolerance that the parameters must have changed by, or equality would mean nothing
ROUNDING = 3  # times the plain loop's own rounding error is allowed as timed: both sides have one
ULPS = 10  # always allowed, in float32 as timed: by chance the plain loop may round better than what it judges
CHUNK = 2**17  # values that are compared at a time, which fit the cores' caches: 2**22 took six times as long
VOID = 0.5  # half of the step: a tolerance this large could not tell a step with half of its gradients


class ProofFailed(RuntimeError):
    """A strategy does not compute what the plain loop computes: its timing would mean nothing."""

    reason = Reason.NOT_PROVEN


class Void(ProofFailed):
    """Whatever a strategy computes, this would prove nothing. One rank may see it alone."""


class Trained(Protocol):
    """What the plain loop leaves; `losses` are those of its first step before and after all of them."""

    @property
    def before(self) -> Sequence[Tensor]: ...

    @property
    def after(self) -> Sequence[Tensor]: ...

    @property
    def buffers(self) -> Sequence[Tensor]: ...

    @property
    def losses(self) -> tuple[float, float]: ...

    def only(self, parameters: Sequence[int], buffers: Sequence[int]) -> "Trained":
        """The same of some of the parameters and buffers."""


@dataclass(frozen=True)
class Change:
    """What one step of the plain loop adds to every parameter, and how far from it, relatively, a step may be.

    A step that is farther may be as far as `widest` says, which takes several plain steps to know.
    """

    step: list[Tensor]
    tolerance: float
    widest: Callable[[], float] | None = None

    def only(self, parameters: Sequence[int], buffers: Sequence[int]) -> "Change":
        """The same of some of the parameters."""
        return replace(self, step=[self.step[index] for index in parameters])


class PlainLoop(Protocol):
    """Trains as the strategy does or, `exactly`, on the same values in float64, from parameters nudged by so much.

    The losses are known if it is `scored`.
    """

    def __call__(self, exactly: bool, nudge: float = 0.0, /, *, scored: bool = False) -> Trained: ...


def expected(name: str, plain: PlainLoop, *, exact: bool) -> Trained | Change:
    """What a strategy must do: in float64 what the plain loop does; as timed its change, within its rounding error.

    A step as timed may be as far as the largest of several runs' tolerances. Rounding moves a unit's input to either
    side of zero, which opens or shuts it: a few of many, and none in some runs. So once a step is seen to be farther,
    the plain one is taken from parameters that differ by little more than their rounding.
    ProofFailed if equality would prove nothing: if the loop's parameters hardly changed, or its loss did not fall.
    """

    @functools.cache
    def widest() -> float:
        exactly = plain(True)
        return max(change(name, plain(False, run * NUDGE), exactly).tolerance for run in range(1, RUNS))

    if not exact:
        return replace(change(name, plain(False), plain(True)), widest=widest)
    trained = plain(False, scored=True)
    moved, (first, last) = largest_difference(trained.after, trained.before), trained.losses
    if not MOVED * TOLERANCE < moved < float("inf"):
        raise Void(f"{name}: void, parameters changed by {moved:.3g} only, not timed")
    if not last < first:
        raise Void(f"{name}: void, the loss went from {first:.6g} to {last:.6g}, not timed")
    return trained


def agreed(checks: Sequence[Check], ranks: Ranks) -> list[Check]:
    """The checks with the largest difference of any rank. NaN, which a maximum may lose, counts as infinite."""
    worst = ranks.maximum([_number(check.difference) for check in checks]) if checks else []
    return [replace(check, difference=difference) for check, difference in zip(checks, worst, strict=True)]


def refuse_failed(checks: Sequence[Check]) -> None:
    """ProofFailed for the first that failed; on every rank, if all ranks have agreed on the checks."""
    for check in checks:
        if not check.passed:
            raise ProofFailed(
                f"{check.name} ({check.dtype}): differs by {check.difference:.3g}, at most {check.tolerance:.3g} is"
                " allowed; not timed"
            )


def _number(difference: float) -> float:
    return difference if difference == difference else float("inf")


def same_values(name: str, ours: Tensor, reference: Tensor) -> Check:
    """Equal in shape and element by element, with tolerance zero. Infinite where a value is not finite."""
    return Check(name=name, dtype=_dtype(ours), difference=largest_difference([ours], [reference]), tolerance=0.0)


def same_parameters(name: str, ours: Iterable[Tensor], trained: Trained) -> Check:
    """The largest absolute difference of parameters and buffers to the plain loop's after the same float64 steps."""
    wanted = [*trained.after, *trained.buffers]
    return Check(name=name, dtype="float64", difference=largest_difference(list(ours), wanted), tolerance=TOLERANCE)


def change(name: str, trained: Trained, exact: Trained) -> Change:
    """The plain loop's step as timed, and the tolerance: from `exact`, the same in float64 and in the opposite order.

    ProofFailed if the two differ so much that a wrong step could hide between them.
    """
    step = [real(now).float() - real(then).float() for then, now in zip(trained.before, trained.after, strict=True)]
    return Change(step, _tolerance(name, step_distance(trained, exact), trained.before[0].dtype))


def step_distance(ours: Trained, reference: Trained) -> float:
    """How far apart two changes of the parameters are, over the length of the second."""
    return _distance(_change(ours.before, ours.after), _change(reference.before, reference.after))


def real(tensor: Tensor) -> Tensor:
    """All its values, and complex ones as pairs of real ones: .double() would leave out the imaginary part."""
    tensor = tensor.to_dense() if tensor.layout is torch.sparse_coo else tensor
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _tolerance(name: str, error: float, dtype: torch.dtype) -> float:
    """What the rounding error of the plain loop in this dtype, relative to what is compared, allows."""
    if not ROUNDING * error < VOID:
        raise Void(f"{name}: void, rounding alone changes it by {error:.2g} of itself, not timed")
    return max(ROUNDING * error, TOLERANCE if dtype in EXACT else ULPS * torch.finfo(dtype).eps)


def compressed(name: str, step: Change, shares: Sequence[Sequence[Tensor]], dtype: torch.dtype) -> Change:
    """The plain loop's step, and the tolerance if what every rank adds to the gradient was rounded to `dtype`.

    `shares` are what the n ranks add. Each is rounded twice, as it is converted and divided, and each of the n - 1 sums
    once: by at most a unit roundoff of the value or, below the smallest normal number, half its spacing. Roundings of
    millions of values are independent, so that their squares add up; three times that is allowed.
    Source: Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019.
    """
    ranks, limits = len(shares), torch.finfo(dtype)
    whole = _norm(reduce(torch.add, parts) for parts in zip(*map(_double, shares), strict=True))
    parts = math.sqrt(sum(_norm(_double(share)) ** 2 for share in shares))
    relative = limits.eps / 2 * math.hypot(math.sqrt(2) * parts, math.sqrt(ranks - 1) * max(parts, whole))
    values = sum(gradient.numel() for gradient in shares[0])
    absolute = limits.smallest_normal * limits.eps / 2 * math.sqrt((3 * ranks - 1) * values)
    rounding, widest = ROUNDING * (relative + absolute) / whole, step.widest
    if not step.tolerance + rounding < VOID:
        raise Void(f"{name}: void, compression alone may change a step by {rounding:.2g} of itself, not timed")
    return Change(step.step, step.tolerance + rounding, (lambda: widest() + rounding) if widest else None)


def same_change(name: str, before: Sequence[Tensor], after: Sequence[Tensor], expected: Change) -> Check:
    """How far one step is from the plain loop's, relative to the step: Euclidean norms over all parameters."""
    count = len(expected.step)
    difference = _distance(_change(before[:count], after[:count]), _double(expected.step))
    tolerance = expected.tolerance
    if not difference <= tolerance and expected.widest:
        tolerance = max(tolerance, expected.widest())
    return Check(name=name, dtype=_dtype(before[0]), difference=difference, tolerance=tolerance)


def same_losses(
    name: str, dtype: str, ours: float, plain: tuple[float, float], strayed: Sequence[float]
) -> Iterator[Check]:
    """Of a step that rounds differently: the loss after it against the plain loop's in float32.

    `plain` is that loop's loss before and after it, `strayed` the loss after it of loops with random errors as large as
    those roundings. Three times the farthest of those is allowed. That must be less than half of what the loss falls
    by, or it could not tell steps with half of their gradients; so our loss has fallen, too.
    """
    before, after = plain
    allowed, fall = ROUNDING * max(abs(one - after) for one in strayed), before - after
    void = allowed / fall if fall > 0 else math.inf
    yield Check(name=f"{name}: loss, against float32's", dtype=dtype, difference=abs(ours - after), tolerance=allowed)
    what = f"{name}: what rounding may change, over the fall of the loss"
    yield Check(name=what, dtype=dtype, difference=_number(void), tolerance=VOID)


def same_replicas(replicas: Sequence[Sequence[Tensor]]) -> Check:
    """The largest difference between the first replica's parameters and any other's, bit for bit."""
    sums = [checksum(replica) for replica in replicas]
    difference = max(abs(value - sums[0]) for value in sums)
    return Check(name="checksums of the replicas", dtype=_dtype(replicas[0][0]), difference=difference, tolerance=0.0)


def checksum(tensors: Iterable[Tensor]) -> float:
    """CRC-32 of the tensors' bytes, one after the other: the same where they are the same bit for bit."""
    value = 0
    for tensor in tensors:
        for chunk in local(tensor).detach().reshape(-1).split(CHUNK):
            value = zlib.crc32(chunk.cpu().view(torch.uint8).numpy().data, value)
    return float(value)


def same_gradients(name: str, ours: Sequence[Tensor], plain: Sequence[Tensor], exact: Sequence[Tensor]) -> Check:
    """How far gradients are from the plain ones, relatively; `exact` are those in float64 and in the opposite order."""
    tolerance = _tolerance(name, _distance(_double(plain), _double(exact)), ours[0].dtype)
    difference = _distance(_double(ours), _double(plain))
    return Check(name=name, dtype=_dtype(ours[0]), difference=difference, tolerance=tolerance)


def _double(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Some rows at a time, as in what follows: of a large model, all would be gigabytes on each of eight ranks."""
    for tensor in tensors:
        values = torch.atleast_1d(real(tensor.detach()))
        rows = max(1, CHUNK * len(values) // max(1, values.numel()))
        for part in values.split(rows):
            yield part.cpu().double()


def _change(before: Sequence[Tensor], after: Sequence[Tensor]) -> Iterator[Tensor]:
    for then, now in zip(_double(before), _double(after), strict=True):
        yield now - then


def _distance(ours: Iterable[Tensor], reference: Iterable[Tensor]) -> float:
    """The norm of the difference over the norm of the reference; infinite if shapes differ or a value is not finite."""
    difference, norm = 0.0, 0.0
    for a, b in zip_longest(ours, reference):
        if a is None or b is None or a.shape != b.shape:
            return math.inf
        difference, norm = math.hypot(difference, _norm([a - b])), math.hypot(norm, _norm([b]))
    return _number(difference / norm) if norm else math.inf


def _norm(tensors: Iterable[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))


def largest_difference(ours: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """The largest absolute difference; infinite if shapes differ or a value on either side is not finite."""
    found = [0.0]
    for a, b in zip(map(real, ours), map(real, reference), strict=True):
        if a.shape != b.shape:
            return float("inf")
        chunks = (values.detach().reshape(-1).split(CHUNK) for values in (a, b))
        place = _where_to_compare(a, b)
        found += [_difference(x.to(place), y.to(place)) for x, y in zip(*chunks, strict=True)]
    return max(found) if all(map(math.isfinite, found)) else float("inf")


def _where_to_compare(a: Tensor, b: Tensor) -> torch.device:
    """The GPU that holds one of them, or the host: comparing gigabytes there takes seconds."""
    gpus = {tensor.device for tensor in (a, b)} - {torch.device("cpu")}
    return gpus.pop() if len(gpus) == 1 else torch.device("cpu")


def _difference(a: Tensor, b: Tensor) -> float:
    if not a.is_floating_point():  # bytes are not widened unless they differ
        return 0.0 if torch.equal(a, b) else float((a.long() - b.long()).abs().max())
    return float((a - b).abs().max()) if a.numel() else 0.0


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Precision of a setting: float64 for exact proofs, otherwise as timed."""

    exact: bool = False

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.exact else torch.float32


def training(
    where: str,
    work: Work,
    state: Callable[[], Sequence[Tensor]],
    expected: Callable[[], Trained | Change],
    *,
    times: int,
    steps: int | None = None,
    devices: Iterable[Synchronised],
    counts: Mapping[str, float],
    settling: int = 0,
    compared: Callable[[], Sequence[Tensor]] | None = None,
    **more: Any,
) -> Subject:
    """Work that trains: `times` calls of it must leave what is expected in `compared`, which is its state by default.

    These calls take `steps` steps, by default one each; with times = 0, nothing is compared: the builder's work was, at
    other settings. After so many further calls as `settling` it does what it goes on to do. `where` are the check's
    words for what was built, and `more` goes to the Subject.
    """
    waited_for, tensors = list(devices), compared or state

    def call(times: int) -> None:
        for _ in range(times):
            work()
            for device in waited_for:
                device.synchronize()

    def prove() -> Iterator[Check]:
        wanted, after = expected(), progress.counted(times if steps is None else steps, "step")
        before = [tensor.detach().to("cpu", copy=True) for tensor in tensors()] if isinstance(wanted, Change) else []
        call(times)
        if isinstance(wanted, Change):
            yield same_change(f"{where}: change in {after}", before, tensors(), wanted)
        else:
            yield same_parameters(f"{where}: parameters after {after}", tensors(), wanted)
        call(settling)

    return Subject(work=work, prove=prove if times else tuple, expected=counts, state=state, **more)


# Collectives are proven with whole numbers: known for every place and rank, and exact in float32 when summed. They are
# made and compared on the device of the tensor, chunk by chunk: all at once, those of a gigabyte would take several
# times as much memory, and on the host eight times that for eight ranks.
PERIOD = 997  # a prime, so that parts of equal length differ; the sums of 16,000 ranks are exact
Value = Callable[[Tensor], Tensor]  # of places 0, 1, 2 ... in a flat tensor, what belongs there


def number(places: Tensor, rank: Tensor | int) -> Tensor:
    """What a rank has at these places: at least 1, so that the sum of all lacks something without it."""
    return places * (rank + 1) % PERIOD + 1


def total(places: Tensor, ranks: Iterable[int]) -> Tensor:
    """The sum of what these ranks have."""
    return torch.stack([number(places, rank) for rank in ranks]).sum(dim=0)


def fill(tensor: Tensor, value: Value) -> None:
    """Give every element of a flat tensor the value of its place."""
    for places, chunk in _places(tensor):
        chunk.copy_(value(places))


def same_as(name: str, tensor: Tensor, value: Value) -> Check:
    """Each element of a flat tensor against the value of its place: tolerance zero, infinite where it is not finite."""
    found = [float((chunk - value(places)).abs().max()) for places, chunk in _places(tensor)]
    difference = max(found, default=0.0) if all(map(math.isfinite, found)) else math.inf
    return Check(name=name, dtype=_dtype(tensor), difference=difference, tolerance=0.0)


def _places(tensor: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Places, and the elements there."""
    for start in range(0, len(tensor), CHUNK):
        chunk = tensor[start : start + CHUNK]
        yield torch.arange(start, start + len(chunk), device=tensor.device), chunk
