"""Where the time of a step goes: terms that add up to it, each from its own measurement, with its error.

Of strategies whose devices share the batch (DDP, FSDP, HSDP), b samples on each of n devices:

    compute         T(B) B'/(B n)     one device's step over its batch B, for the whole batch B' = n b
    recomputation                     what of that is computed again in the backward, by its operations
    update          V - A B'/(B n)    A: one device's update alone; V: of what each device updates, in proportion
    smaller batch   T(b) - A - those  one device alone, over b samples; called launching if the host sets its pace
    side by side    mean_r U_r - T(b) the ranks' own steps at the same time, without exchanging anything
    slowest rank    U - mean_r U_r    U: the slowest rank of each round
                                      and, of batches of unequal length, of each step of a cycle: then it is their mean
    communication   S - (U - A + V)   S: the step. At most what the exchange of DDP's gradients takes alone, and half
                                      as much again where parameters are gathered twice

Of cut models, from what every stage takes alone and the schedule played with these times (P), of replicas that are cut
where one of them was timed alone:

    update          mean over stages of their updates - A B'/(B n)
    smaller batch   mean over stages of their own time - those
    uneven cut      the slowest stage - that mean
    bubble          P - the slowest stage; of an interleaved schedule, which is not played, that of equal stages

A term that a strategy should have and nothing tells is missing, with the reason. The rest is what remains of the step:
beyond 5 %, these terms do not explain it. Input comes on top: what a DataLoader takes longer for the batch than the
step, which computes on data that is there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import mean

from scalecard.analysis import step_records
from scalecard.analysis.platforms import PlatformResults
from scalecard.analysis.step_records import error_of_difference, half_width, in_quadrature
from scalecard.analysis.strategy_choice import StrategyRun, strategy_runs, workloads
from scalecard.records import strategies
from scalecard.records.axes import BASELINE, Case
from scalecard.records.record import Record, Result
from scalecard.records.strategies import DDP, OURS, Collective, Division, Family, Schedule, Strategy, Untimed

COMPUTE, RECOMPUTED, UPDATE = "compute", "recomputation", "update"
SMALLER, LAUNCHING = "smaller batch", "launching"
SHARING, SLOWEST, EXPOSED = "side by side", "slowest rank", "communication"
UNEVEN, BUBBLE, INPUT, REST = "uneven cut", "bubble", "input", "the rest"
TERMS = (COMPUTE, RECOMPUTED, UPDATE, SMALLER, LAUNCHING, SHARING, SLOWEST, EXPOSED, UNEVEN, BUBBLE, INPUT, REST)
TERMS_OF = {  # of which nothing is known if this was not timed alone
    Untimed.RANKS: (SMALLER, SHARING, SLOWEST, EXPOSED),
    Untimed.THREADS: (SHARING, SLOWEST, EXPOSED),
    Untimed.LAYERS: (EXPOSED,),
    Untimed.STAGES: (SMALLER, UNEVEN, BUBBLE),
    Untimed.STAGE_PAIRS: (UNEVEN,),
    Untimed.REPLICAS: (SLOWEST, EXPOSED),
    Untimed.HOST: (UPDATE,),
}
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


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """A run's step and its terms: input comes on top, the others add up to it. The rest includes what is `untimed`."""

    run: StrategyRun
    terms: list[Term]
    untimed: tuple[Untimed, ...]

    @property
    def seconds(self) -> float:
        return self.run.step.median

    @property
    def ideal(self) -> float:
        """Seconds of the share of one device's step, which computes again as much."""
        return self.of(COMPUTE) + self.of(RECOMPUTED)

    @property
    def largest(self) -> Term:
        """Of what a step takes beyond that, and what its input takes longer."""
        beyond = (term for term in self.terms if term.name not in (COMPUTE, RECOMPUTED))
        return max(beyond, key=lambda term: term.seconds)

    @property
    def explained(self) -> bool:
        """Whether the terms explain the step within 5 %."""
        return abs(self.of(REST)) <= UNEXPLAINED * self.seconds

    def term(self, name: str) -> Term:
        """The term of this name, of 0 s if there is none."""
        return next((term for term in self.terms if term.name == name), Term(name, 0.0))

    def of(self, name: str) -> float:
        """Seconds of a term."""
        return self.term(name).seconds


@lru_cache(maxsize=2)  # figure, findings and table are of the same
def of_strategies(measured: PlatformResults) -> list[Breakdown]:
    """Every strategy on several devices whose workload one device can train; without one there is no ideal share."""
    result = measured.of("strategies")
    if result is None:
        return []
    runs = [run for workload in workloads(result) for run in strategy_runs(result, workload)]
    return [_of(run, run.alone, result, measured) for run in runs if run.fits and run.devices > 1 and run.alone]


@dataclass(frozen=True)
class Ideal:
    """The `share` of one device's step that is each device's, in seconds; one device's `update` is a part of that step.

    An update of 0 s was not timed.
    """

    seconds: float
    error: float | None
    update: float
    share: float

    @property
    def without_update(self) -> float:
        """Seconds of what becomes shorter with the batch."""
        return self.seconds - self.share * self.update

    def beyond(self, time: float, update: float, error: float | None, *, launching: bool = False) -> list[Term]:
        """The terms of a device that computes so long, of which so long an update."""
        name, error = LAUNCHING if launching else SMALLER, in_quadrature(error, self.error)
        if not self.update:
            return [Term(name, time - self.seconds, error)]
        extra = Term(UPDATE, update - self.share * self.update)
        return [extra, Term(name, time - update - self.without_update, error)]


def _of(run: StrategyRun, single: Record, result: Result, measured: PlatformResults) -> Breakdown:
    step, kind = run.step, strategies.of(run.step.case["strategy"])
    share = step.integer("units") / single.integer("units") / step.integer("devices")
    update = result.find("update_time", workload=step.case["workload"])
    ideal = Ideal(share * single.median, half_width(single, share), update.median if update else 0.0, share)
    again = ideal.without_update * step_records.recomputed_share(single)
    found, untimed = _terms(kind, step, result, ideal)
    missing = {name for part in kind.untimed for name in TERMS_OF[part]}
    found = [term for term in found if term.name not in missing]
    terms = [Term(COMPUTE, ideal.seconds - again, ideal.error), *([Term(RECOMPUTED, again)] if again else []), *found]
    terms.append(Term(REST, step.median - sum(term.seconds for term in terms), half_width(step)))
    terms += _input(step, measured)
    return Breakdown(run=run, terms=terms, untimed=(*untimed, *kind.untimed))


def _terms(kind: Strategy, step: Record, result: Result, ideal: Ideal) -> tuple[list[Term], tuple[Untimed, ...]]:
    """What a step takes beyond its share of the computing, or what should have been timed alone to tell."""
    if kind.family is Family.DATA:
        found, lacking = _of_ranks(kind, step, result, ideal), Untimed.RANKS
    elif kind.schedule is Schedule.INTERLEAVED:
        found, lacking = _of_interleaved(kind, step, result, ideal), Untimed.STAGES
    elif Division.STAGES in kind.divides:
        found, lacking = _of_cut(kind, step, result, ideal), Untimed.STAGES
    else:
        return [], ()
    return found, () if found else (lacking,)


def _of_ranks(kind: Strategy, step: Record, result: Result, ideal: Ideal) -> list[Term]:
    """Of what shares its batch as DDP does; nothing if DDP, or one device with as few samples, was not measured."""
    local = _local(result, step)
    if local is None:
        return []
    time, error, launching = local
    update = ideal.update * kind.updated_share(step.integer("devices"), step.integer("nodes", 1))
    saved = ideal.update - update
    found = ideal.beyond(time - saved, update, error, launching=launching)
    if not kind.on_ranks:
        return found
    case: Case = {**step_records.place(step), "strategy": DDP.name}
    slowest = result.find("unsynchronised_time", **case)
    own = [record for record in result.select("rank_time", **case) if "rank" in record.case]
    if not (slowest and own):
        return []
    middle, (each, always) = mean(record.median for record in own), _compared(own)
    exchange, exposed = result.find("exchange_time", **case), step.median - (slowest.median - saved)
    if exchange:
        exposed = max(0.0, min(exposed, _exchanges(kind, step.text("precision", BASELINE)) * exchange.median))
    return [
        *found,
        Term(SHARING, middle - time, in_quadrature(half_width(own[0]), error)),
        Term(SLOWEST, slowest.median - middle, error_of_difference(slowest, each), always),
        Term(EXPOSED, exposed, error_of_difference(step, slowest)),
    ]


def _exchanges(kind: Strategy, precision: str) -> float:
    """What a step sends, over what DDP's all-reduce sends.

    Around rings of n nodes of k devices, HSDP's replicas send less than the shorter rings within a node save:
    (3nk - n - 2)/(2nk - 2) is at most 1.5 in float32, and 1 in bf16.
    """
    sent = sum(one.times * one.collective.passes * one.bytes_ratio(precision) for one in kind.weight_collectives)
    return sent / Collective.ALL_REDUCE.passes


def _local(result: Result, step: Record) -> tuple[float, float | None, bool] | None:
    """One device's step over its share of the batch, its error, and whether the host sets its pace.

    Between two sizes that were timed, on the line between them.
    """
    size = step.integer("batch_size") / step.integer("devices")
    timed = {r.integer("batch_size"): r for r in result.select("local_time", workload=step.case["workload"])}
    below = max((known for known in timed if known <= size), default=None)
    above = min((known for known in timed if known >= size), default=None)
    if below is None or above is None:
        return None
    low, high = timed[below], timed[above]
    weight = (size - below) / (above - below) if above > below else 0.0
    return low.median + weight * (high.median - low.median), half_width(high), low.launch_bound


def _of_cut(kind: Strategy, step: Record, result: Result, ideal: Ideal) -> list[Term]:
    """Of pipelines and model parallelism, also as a replica: from their stages alone; nothing of what has none."""
    where = _replica(kind, step)
    played = result.find("played_time", strategy=OURS[kind.schedule].name, **where)
    stages = _stages(kind, where, result)
    if not (played and stages):
        return []
    busy, error = [record.median + update for record, update in stages], half_width(played)
    middle = mean(busy)
    return [
        *ideal.beyond(middle, mean(update for _, update in stages), error),
        Term(UNEVEN, max(busy) - middle, error),
        Term(BUBBLE, played.median - max(busy), error),
    ]


def _of_interleaved(kind: Strategy, step: Record, result: Result, ideal: Ideal) -> list[Term]:
    """Of v stages on each of p devices, from as many stages as devices: together, they compute the same.

    The bubble is that of equal stages, (p - 1)/v of what one device computes of a micro-batch. Source: Narayanan et
    al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM (2021), section 2.2.
    """
    stages = _stages(kind, _replica(kind, step), result)
    if not stages:
        return []
    both = [record for record, _ in stages]
    num_micro = step.integer("batch_size") / both[0].integer("split_size")
    bubbles = (len(stages) - 1) / (Schedule.INTERLEAVED.stages_each * num_micro)
    together, each = in_quadrature(*map(half_width, both)), mean(record.median for record in both)
    error, update = together and together / len(stages), mean(update for _, update in stages)
    return [
        *ideal.beyond(each + update, update, error),
        Term(BUBBLE, bubbles * each, error and bubbles * error),
    ]


def _replica(kind: Strategy, step: Record) -> Case:
    """Where the stages of a step were timed alone: those of replicas, where one trains such a share of the batch."""
    case: Case = {axis: step.case.get(axis) for axis in ("workload", "devices", "nodes", "scaling", "batch_size")}
    if not kind.replica_devices:
        return case
    del case["scaling"]  # its share may be the batch of another scaling
    replicas = step.integer("devices") // kind.replica_devices
    whole = step.integer("batch_size")
    return {**case, "devices": kind.replica_devices, "nodes": None, "batch_size": whole // replicas}


def _stages(kind: Strategy, where: Case, result: Result) -> list[tuple[Record, float]]:
    """Each stage's forwards and backwards, by micro-batches if the step has any, and its update's seconds."""
    both = result.select("stage_time", **where, part="forward and backward")
    sizes = sorted({record.integer("split_size") for record in both})
    if not sizes:
        return []
    size = sizes[0] if kind.schedule else sizes[-1]
    place = {axis: where[axis] for axis in ("workload", "devices")}  # an update knows nothing of the batch
    update = {record.case["stage"]: record.median for record in result.select("stage_time", **place, part="update")}
    own = [record for record in both if record.case["split_size"] == size]
    return [(record, update.get(record.case["stage"], 0.0)) for record in own]


def _input(step: Record, measured: PlatformResults) -> Iterator[Term]:
    """With the number of workers that loads the fastest, on every node for the node's own devices."""
    result = measured.of("input")
    loads = result.select("load_time", workload=step.case["workload"]) if result else []
    fastest = min(loads, key=lambda record: record.median / record.integer("batch_size"), default=None)
    if fastest is None:
        return
    times = step.integer("batch_size") / step.integer("nodes", 1) / fastest.integer("batch_size")
    longer = times * fastest.median - step.median
    if longer > 0:
        yield Term(INPUT, longer, in_quadrature(half_width(fastest, times), half_width(step)))


def _compared(own: Sequence[Record]) -> tuple[Record, int | None]:
    """The ranks' mean of each round, and the rank that is the slowest in nearly all, if one is, and not by chance."""
    processes = [list(zip(*ranks, strict=True)) for ranks in zip(*(record.samples for record in own), strict=True)]
    rounds = [[mean(values) for values in process] for process in processes]
    each = Record(case={}, metric="rank_time", unit="s", samples=rounds, telemetry=own[0].telemetry)
    slowest = [max(range(len(own)), key=values.__getitem__) for process in processes for values in process]
    often = max(set(slowest), key=slowest.count)
    by_chance = len(slowest) < FEW_ROUNDS or slowest.count(often) < ALWAYS * len(slowest)
    return each, None if by_chance else own[often].integer("rank")
