"""The catalogue of strategies: how each divides training, what it exchanges, and what of its step nothing times alone.

Breakdown, forecast, advice and figures read it, and `strategies` measures nothing that is not in it.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from scalecard.records.axes import Scalar


class Division(Enum):
    """What the devices divide among them: the batch, between copies or shards of the model, or the model itself."""

    REPLICAS = auto()
    SHARDS = auto()
    STAGES = auto()
    TENSORS = auto()


class Family(Enum):
    """Strategies whose steps are made of the same terms."""

    SINGLE = auto()  # one device
    DATA = auto()  # every device has its own share of the batch
    STAGES = auto()  # every device has its own part of the chain of layers
    TENSOR = auto()  # every device has its own part of each layer
    PRODUCT = auto()  # replicas, each of several devices


class Schedule(StrEnum):
    """The order in which the stages of a pipeline take micro-batches."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved 1f1b"

    @property
    def stages_each(self) -> int:
        """Stages on each device."""
        return 2 if self is Schedule.INTERLEAVED else 1


class Collective(StrEnum):
    """How devices exchange; the values are those of records."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"

    @property
    def passes(self) -> int:
        """How often each byte travels around a ring: an all-reduce is a reduce-scatter and an all-gather."""
        return 2 if self is Collective.ALL_REDUCE else 1


class Payload(Enum):
    """What is exchanged, which also says how often: the last one in each layer, the others in each step."""

    GRADIENTS = auto()
    PARAMETERS = auto()
    UPDATED = auto()  # parameters, as the update leaves them
    ACTIVATIONS = auto()


class Among(Enum):
    """Which devices exchange with one another."""

    ALL = auto()
    REPLICA = auto()  # those of one replica, side by side with the others
    REPLICAS = auto()  # those that have the same part of each replica, side by side with the other parts


@dataclass(frozen=True)
class Communication:
    """A collective over all of its payload, so many `times` each time that it is exchanged."""

    collective: Collective
    payload: Payload
    among: Among = Among.ALL
    times: int = 1

    def bytes_ratio(self, precision: str) -> float:
        """Bytes each time, over those of the gradients, which are float32: in bf16 parameters have half as many."""
        return 0.5 if self.payload is Payload.PARAMETERS and precision == "bf16" else 1.0


class Untimed(Enum):
    """What makes up a step and is not timed alone, so that nobody can tell how long it takes."""

    RANKS = auto()  # what each computes without exchanging
    THREADS = auto()  # of nn.DataParallel, with their copies from and to the first device
    LAYERS = auto()  # divided ones, with the all-reduces within them
    STAGES = auto()  # at the micro-batches of the step
    STAGE_PAIRS = auto()  # those that an interleaved schedule puts on one device
    REPLICAS = auto()  # what they exchange, and how long they wait for the slowest
    HOST = auto()  # copies from and to its memory, and the update that its cores do


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One way to train.

    `name` is what records and the report call it. `on_ranks`: a process for every device; otherwise one drives all.
    `collectives` does not have what stages hand to the next one. Without a `schedule`, they take the whole batch one
    after another. `replica_devices`: of each replica of a product; 0 of others. `untimed`: what of its step no
    experiment times alone. `colour` is a place in the palette.
    """

    name: str
    on_ranks: bool = True
    divides: tuple[Division, ...] = ()
    collectives: tuple[Communication, ...] = ()
    schedule: Schedule | None = None
    replica_devices: int = 0
    untimed: tuple[Untimed, ...] = ()
    colour: int

    @property
    def family(self) -> Family:
        """Told from what it divides."""
        model = [each for each in self.divides if each in (Division.STAGES, Division.TENSORS)]
        if not model:
            return Family.DATA if self.divides else Family.SINGLE
        if len(self.divides) > 1:
            return Family.PRODUCT
        return Family.STAGES if model == [Division.STAGES] else Family.TENSOR

    @property
    def weight_collectives(self) -> list[Communication]:
        """Of all parameters or gradients, among all devices or those of a replica.

        What replicas exchange are shards of what is counted here.
        """
        whole = (one for one in self.collectives if one.among is not Among.REPLICAS)
        return [one for one in whole if one.payload is not Payload.ACTIVATIONS]

    def updated_share(self, devices: int, nodes: int) -> float:
        """Of all parameters, the share that each of so many devices updates where they divide the batch."""
        if Untimed.HOST in self.untimed:
            return 0.0
        if Division.SHARDS in self.divides:
            return (nodes if Division.REPLICAS in self.divides else 1) / devices
        divided = any(one.payload is Payload.UPDATED for one in self.collectives)
        return 1 / devices if divided else 1.0

    def times(self, collective: Collective) -> int:
        """How often a step exchanges all parameters or gradients in this way."""
        return sum(one.times for one in self.weight_collectives if one.collective is collective)


def _sharded(gathers: int, among: Among = Among.ALL) -> tuple[Communication, ...]:
    """Parameters are gathered for the forward and, if they are freed after it, for the backward as well."""
    return (
        Communication(Collective.ALL_GATHER, Payload.PARAMETERS, among, gathers),
        Communication(Collective.REDUCE_SCATTER, Payload.GRADIENTS, among),
    )


IN_STAGES = (Division.STAGES,)
GRADIENTS = (Communication(Collective.ALL_REDUCE, Payload.GRADIENTS),)
BETWEEN_REPLICAS = (Communication(Collective.ALL_REDUCE, Payload.GRADIENTS, Among.REPLICAS),)
WITHIN_LAYERS = (Communication(Collective.ALL_REDUCE, Payload.ACTIVATIONS, Among.REPLICA),)

SINGLE = Strategy(name="single device", on_ranks=False, colour=7)
DATA_PARALLEL = Strategy(  # nn.DataParallel: its threads copy, without collectives
    name="DataParallel", on_ranks=False, divides=(Division.REPLICAS,), untimed=(Untimed.THREADS,), colour=6
)
DDP = Strategy(name="DDP", divides=(Division.REPLICAS,), collectives=GRADIENTS, colour=0)
ZERO_1 = Strategy(  # DDP, whose ranks update some parameters each
    name="ZeRO-1",
    divides=(Division.REPLICAS,),
    collectives=(*GRADIENTS, Communication(Collective.ALL_GATHER, Payload.UPDATED)),
    colour=3,
)
FSDP_GRADIENTS = Strategy(name="FSDP gradients", divides=(Division.SHARDS,), collectives=_sharded(1), colour=6)
FSDP_PARAMETERS = Strategy(name="FSDP parameters", divides=(Division.SHARDS,), collectives=_sharded(2), colour=1)
FSDP_OFFLOAD = Strategy(  # whose shards, gradients and states are in the host's memory, and are updated there
    name="FSDP offload",
    divides=(Division.SHARDS,),
    collectives=_sharded(2),
    untimed=(Untimed.HOST,),
    colour=4,
)
HSDP = Strategy(  # a node is a replica, whose devices have a shard each
    name="HSDP",
    divides=(Division.REPLICAS, Division.SHARDS),
    collectives=(*_sharded(2, Among.REPLICA), *BETWEEN_REPLICAS),
    colour=5,
)
MODEL_PARALLEL = Strategy(name="model parallel", on_ranks=False, divides=IN_STAGES, colour=3)
OUR_GPIPE = Strategy(name="our gpipe", on_ranks=False, divides=IN_STAGES, schedule=Schedule.GPIPE, colour=1)
OUR_1F1B = Strategy(name="our 1f1b", on_ranks=False, divides=IN_STAGES, schedule=Schedule.ONE_F_ONE_B, colour=2)
TORCH_GPIPE = Strategy(name="torch gpipe", divides=IN_STAGES, schedule=Schedule.GPIPE, colour=5)
TORCH_1F1B = Strategy(name="torch 1f1b", divides=IN_STAGES, schedule=Schedule.ONE_F_ONE_B, colour=4)
TORCH_INTERLEAVED = Strategy(
    name="torch interleaved 1f1b",
    divides=IN_STAGES,
    schedule=Schedule.INTERLEAVED,
    untimed=(Untimed.STAGE_PAIRS,),
    colour=6,
)
TENSOR_PARALLEL = Strategy(
    name="tensor parallel",
    divides=(Division.TENSORS,),
    collectives=WITHIN_LAYERS,
    untimed=(Untimed.LAYERS,),
    colour=3,
)
DATA_X_TENSOR = Strategy(
    name="data x tensor",
    divides=(Division.SHARDS, Division.TENSORS),
    collectives=(*WITHIN_LAYERS, *_sharded(2, Among.REPLICAS)),
    replica_devices=2,
    untimed=(Untimed.LAYERS, Untimed.REPLICAS),
    colour=4,
)
DATA_X_PIPELINE = Strategy(
    name="data x pipeline",
    divides=(Division.REPLICAS, Division.STAGES),
    collectives=BETWEEN_REPLICAS,
    schedule=Schedule.ONE_F_ONE_B,
    replica_devices=2,
    untimed=(Untimed.REPLICAS,),
    colour=5,
)
HYBRID = Strategy(  # a rank drives all devices of its replica
    name="hybrid",
    divides=(Division.REPLICAS, Division.STAGES),
    collectives=BETWEEN_REPLICAS,
    replica_devices=2,
    untimed=(Untimed.REPLICAS,),
    colour=0,
)

BY_HAND = "by hand"  # data parallelism from scratch, which is beside DDP but no choice: not in the catalogue

# Metrics of a workload that is trained by another recipe than its own, by those of its own.
OTHER_RECIPE = {
    "step_time": "other_recipe_time",
    "peak_memory": "other_recipe_memory",
    "largest_batch": "other_recipe_batch",
}
ALL = (
    SINGLE,
    *(DATA_PARALLEL, DDP, ZERO_1, FSDP_GRADIENTS, FSDP_PARAMETERS, FSDP_OFFLOAD, HSDP),
    *(MODEL_PARALLEL, OUR_GPIPE, OUR_1F1B, TORCH_GPIPE, TORCH_1F1B, TORCH_INTERLEAVED),
    *(TENSOR_PARALLEL, DATA_X_TENSOR, DATA_X_PIPELINE, HYBRID),
)
BY_NAME = {strategy.name: strategy for strategy in ALL}
OURS = {one.schedule: one for one in (MODEL_PARALLEL, OUR_GPIPE, OUR_1F1B)}  # by what they play, in one process


def of(name: Scalar) -> Strategy:
    """The strategy that records call so; ValueError if there is none."""
    if name not in BY_NAME:
        raise ValueError(f"no strategy is named {name!r} (known: {', '.join(BY_NAME)})")
    return BY_NAME[str(name)]
