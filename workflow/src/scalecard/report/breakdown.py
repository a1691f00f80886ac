"""Where the time of a step goes: terms that add up to it, each from its own measurement, with its error.

Of strategies whose devices share the batch (DDP, FSDP, HSDP), b samples on each of n devices:

    compute         T(B) B'/(B n)     one device's step over its batch B, for the whole batch B' = n b
    smaller batch   T(b) - that       one device alone, over b samples; called launching if the host sets its pace
    side by side    mean_r U_r - T(b) the ranks' own steps at the same time, without exchanging anything
    slowest rank    U - mean_r U_r    U: the slowest rank of each round
    communication   S - U             S: the step. At most what the exchange of DDP's gradients takes alone, and half
                                      as much again where parameters are gathered twice

Of cut models, from what every stage takes alone and the schedule played with these times (P):

    smaller batch   mean over stages of their own time - compute
    uneven cut      the slowest stage - that mean
    bubble          P - the slowest stage

The rest is what remains of the step: beyond 5 %, these terms do not explain it. Input comes on top: what a DataLoader
takes longer for the batch than the step, which computes on data that is there.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from scalecard.records.record import Case, Record, Result
from scalecard.report import strategy_table
from scalecard.report.answers import Measured

COMPUTE, SMALLER, LAUNCHING = "compute", "smaller batch", "launching"
SHARING, SLOWEST, EXPOSED = "side by side", "slowest rank", "communication"
UNEVEN, BUBBLE, INPUT, REST = "uneven cut", "bubble", "input", "the rest"
TERMS = (COMPUTE, SMALLER, LAUNCHING, SHARING, SLOWEST, EXPOSED, UNEVEN, BUBBLE, INPUT, REST)
UNEXPLAINED = 0.05
ALWAYS = 0.9  # of the rounds, in which one rank is the slowest: then it is named,
FEW_ROUNDS = 12  # unless there are fewer: two equal ranks take turns


@dataclass(frozen=True)
class Term:
    """Seconds of a step; `error` is half of their 95 % interval, if both have one. `rank`: always the slowest one."""

    name: str
    seconds: float
    error: float | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Breakdown:
    """A step and its terms: input comes on top, the others add up to it."""

    record: Record
    terms: list[Term]

    @property
    def seconds(self) -> float:
        """Of the step, as it was timed."""
        return self.record.median

    @property
    def largest(self) -> Term:
        """Of what a step takes beyond its share of the computing, and what its input takes longer."""
        return max((term for term in self.terms if term.name != COMPUTE), key=lambda term: term.seconds)

    @property
    def explained(self) -> bool:
        """Whether hardly anything remains."""
        return abs(self.of(REST)) <= UNEXPLAINED * self.seconds

    def of(self, name: str) -> float:
        """Seconds of a term; 0 if there is none."""
        return sum(term.seconds for term in self.terms if term.name == name)


def of_strategies(measured: Measured) -> list[Breakdown]:
    """Every strategy on several devices whose workload one device can train; without one there is no ideal share."""
    result = measured.of("strategies")
    if result is None:
        return []
    steps = [record for record in result.select("step_time") if float(record.case.get("devices") or 1) > 1]
    return [found for step in steps if (found := _of(step, result, measured))]


def _of(step: Record, result: Result, measured: Measured) -> Breakdown | None:
    single = strategy_table.single(result, str(step.case["workload"]))
    if single is None:
        return None
    terms = [_compute(step, single)]
    terms += (
        _of_shared(step, result, terms[0]) or _of_threads(step, result, terms[0]) or _of_cut(step, result, terms[0])
    )
    terms.append(Term(REST, step.median - sum(term.seconds for term in terms), _half(step)))
    return Breakdown(step, [*terms, *_input(step, measured)])


def _compute(step: Record, single: Record) -> Term:
    share = _number(step, "units") / _number(single, "units") / _number(step, "devices")
    half = _half(single)
    return Term(COMPUTE, share * single.median, None if half is None else share * half)


def _of_shared(step: Record, result: Result, compute: Term) -> list[Term]:
    """Of what shares its batch as DDP does; nothing of other strategies, or if DDP could not be measured."""
    case: Case = {**strategy_table.place(step), "strategy": "DDP"}
    slowest = result.find("unsynchronised_time", **case)
    own = [record for record in result.select("rank_time", **case) if "rank" in record.case]
    local = _local(result, step)
    if not (_shares(step) and slowest and own and local):
        return []
    middle = mean(record.median for record in own)
    exchange, exposed = result.find("exchange_time", **case), step.median - slowest.median
    if exchange:
        exposed = max(0.0, min(exposed, _exchanges(step) * exchange.median))
    return [
        _smaller(local, compute),
        Term(SHARING, middle - local[0], _both(_half(own[0]), local[1])),
        Term(SLOWEST, slowest.median - middle, _of_differences(slowest, _mean_of(own)), _always_slowest(own)),
        Term(EXPOSED, exposed, _of_differences(step, slowest)),
    ]


def _of_threads(step: Record, result: Result, compute: Term) -> list[Term]:
    """Of nn.DataParallel: nothing of it is timed apart but its share of the batch."""
    local = _local(result, step) if step.case["strategy"] == "DataParallel" else None
    return [_smaller(local, compute)] if local else []


def _smaller(local: tuple[float, float | None, bool], compute: Term) -> Term:
    seconds, error, launching = local
    return Term(LAUNCHING if launching else SMALLER, seconds - compute.seconds, _both(error, compute.error))


def _shares(step: Record) -> bool:
    return str(step.case["strategy"]).split()[0] in ("DDP", "FSDP", "HSDP")


def _exchanges(step: Record) -> float:
    """What a step sends, over what DDP sends: an all-reduce is a gather and a scatter."""
    return 1.0 if step.case["strategy"] in ("DDP", "FSDP gradients") else 1.5


def _local(result: Result, step: Record) -> tuple[float, float | None, bool] | None:
    """One device's step over its share of the batch, its error, and whether the host sets its pace.

    Between two sizes that were timed, on the line between them.
    """
    size = _number(step, "batch_size") / _number(step, "devices")
    timed = {_number(r, "batch_size"): r for r in result.select("local_time", workload=step.case["workload"])}
    below = max((known for known in timed if known <= size), default=None)
    above = min((known for known in timed if known >= size), default=None)
    if below is None or above is None:
        return None
    low, high = timed[below], timed[above]
    weight = (size - below) / (above - below) if above > below else 0.0
    return low.median + weight * (high.median - low.median), _half(high), low.launch_bound


def _of_cut(step: Record, result: Result, compute: Term) -> list[Term]:
    """Of pipelines and model parallelism: from their stages alone; nothing of what has none."""
    ours = str(step.case["strategy"]).replace("torch ", "our ")  # which play the same schedule
    played, busy = result.find("played_time", **{**step.case, "strategy": ours}), _busy(step, result)
    if not (played and busy):
        return []
    middle, error = mean(busy), _half(played)
    return [
        Term(SMALLER, middle - compute.seconds, _both(error, compute.error)),
        Term(UNEVEN, max(busy) - middle, error),
        Term(BUBBLE, played.median - max(busy), error),
    ]


def _busy(step: Record, result: Result) -> list[float]:
    """How long every stage computes in a step: its forwards and backwards at the step's micro-batch, and its update."""
    place = {axis: step.case.get(axis) for axis in ("workload", "devices")}
    batch = {axis: step.case.get(axis) for axis in ("scaling", "batch_size")}  # of which an update knows nothing
    both = result.select("stage_time", **place, **batch, part="forward and backward")
    sizes = sorted({_number(record, "split_size") for record in both})
    if not sizes:
        return []
    size = sizes[-1] if step.case["strategy"] == "model parallel" else sizes[0]
    update = {record.case["stage"]: record.median for record in result.select("stage_time", **place, part="update")}
    own = [record for record in both if _number(record, "split_size") == size]
    return [record.median + update.get(record.case["stage"], 0.0) for record in own]


def _input(step: Record, measured: Measured) -> Iterator[Term]:
    """With the number of workers that loads the fastest, on every node for the node's own devices."""
    result = measured.of("input")
    loads = result.select("load_time", workload=step.case["workload"]) if result else []
    fastest = min(loads, key=lambda record: record.median / _number(record, "batch_size"), default=None)
    if fastest is None:
        return
    times = _number(step, "batch_size") / (_number(step, "nodes") or 1) / _number(fastest, "batch_size")
    half = _half(fastest)
    longer = times * fastest.median - step.median
    if longer > 0:
        yield Term(INPUT, longer, _both(None if half is None else times * half, _half(step)))


def _number(record: Record, axis: str) -> float:
    return float(record.case.get(axis) or 0)


def _half(record: Record) -> float | None:
    return record.interval.half_width if record.interval else None


def _both(*errors: float | None) -> float | None:
    """Independent errors add in quadrature."""
    known = [error for error in errors if error is not None]
    return math.hypot(*known) if len(known) == len(errors) else None


def _of_differences(a: Record, b: Record) -> float | None:
    """The error of a - b: of the differences in each round if both share their rounds, which cancels drift."""
    ours, theirs = ([entry.rounds_id for entry in record.telemetry] for record in (a, b))
    if not ours or ours != theirs or list(map(len, a.samples)) != list(map(len, b.samples)):
        return _both(_half(a), _half(b))
    rounds = [[x - y for x, y in zip(xs, ys, strict=True)] for xs, ys in zip(a.samples, b.samples, strict=True)]
    return _half(Record(case={}, metric=a.metric, unit=a.unit, samples=rounds))


def _mean_of(own: Sequence[Record]) -> Record:
    """Of every round, the mean over ranks."""
    processes = zip(*(record.samples for record in own), strict=True)
    rounds = [[mean(values) for values in zip(*ranks, strict=True)] for ranks in processes]
    return Record(case={}, metric="rank_time", unit="s", samples=rounds, telemetry=own[0].telemetry)


def _always_slowest(own: Sequence[Record]) -> int | None:
    """The rank that is the slowest in nearly all rounds, if one is, and not by chance."""
    rounds = [values for ranks in zip(*(r.samples for r in own), strict=True) for values in zip(*ranks, strict=True)]
    slowest = [max(range(len(own)), key=values.__getitem__) for values in rounds]
    often = max(set(slowest), key=slowest.count)
    by_chance = len(slowest) < FEW_ROUNDS or slowest.count(often) < ALWAYS * len(slowest)
    return None if by_chance else own[often].integer("rank")
