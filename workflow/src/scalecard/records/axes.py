"""What a case may say of itself, and the settings of config.yaml that a result keeps: types, labels, units."""

from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from scalecard.records.fields import OPEN, Index, Name, Positive, Rate

Several = Field(min_length=1)
Sweep = Annotated[list[Positive], Several]
Scalar = Annotated[str, Field(max_length=200)] | int | float | bool | None
Case = dict[str, Scalar]
# The switches that tuning tries. A case has an axis for each that is on: its place among them, from 1.
RUNGS = ("tf32", "bf16", "channels_last", "fused", "benchmark", "compile", "graphs")
BASELINE = "float32"  # without any
MemoryKind = Literal["parameters", "gradients", "optimizer", "activations", "rest"]
MEMORY: tuple[MemoryKind, ...] = get_args(MemoryKind)  # what a device's memory is used for, in the order of figures
# To train an epoch: with the textbook's loader and its synchronisation after every batch, with either alone, as all
# others are trained, on resident images, or so with a module and nn.DataParallel instead of code written by hand.
Way = Literal["as printed", "loaded", "synchronised", "resident", "concise"]
WAYS: tuple[Way, ...] = get_args(Way)
# Weights that the textbook's ResNet-18 begins with: normal in all layers but its lazy ones, which its first run leaves
# as they are, in all, or in all of the net that the first run trained, whose biases and normalisations stay.
Start = Literal["not lazy", "all", "second run"]
PRINTED = "resnet18_printed"  # the workload of the textbook's own blocks
DTYPES = {"bf16": "bfloat16", "tf32": "tf32"}  # of products, as the reference of peaks names them
# Axes, and settings of config.yaml, whose values are sizes in bytes.
IN_BYTES = frozenset({"bytes", "link_bytes", "collective_bytes", "memory_bytes"})
# What stands before a value where that is not the axis' name: nothing where the value says enough.
LABELS = {"bytes": "", **{rung: f"{rung} as rung" for rung in RUNGS}}
RUNG = Field(description="a rung of tuning that is on: its place among them, from 1")

PART = Field(
    description="textbook or matrix; of a machine: compute, memory, host link ...; of unequal devices: alone, predicted"
    " or together; of a stage: forward, update ..."
)


@with_config(ConfigDict(strict=True))
class Axes(TypedDict, total=False, extra_items=Scalar):  # type: ignore[call-arg]  # PEP 728, which mypy does not know yet
    """An experiment may have others, which are not described here."""

    access: Annotated[Name, Field(description="of a device's memory: read, write or copy")]
    accumulate: Annotated[Positive, Field(description="batches whose gradients add up to one update, if several")]
    adapter: Annotated[Name, Field(description="of a network, and its port: 'mlx5_0 port 1'")]
    algorithm: Annotated[Name, Field(description="of an all-reduce")]
    at_once: Annotated[bool | None, Field(description="whether all devices, or pairs of them, worked together")]
    backend: Annotated[Name, Field(description="of torch.distributed: nccl or gloo")]
    batch_factor: Annotated[Positive, Field(description="times the workload's usual batch, if it is larger")]
    batch_size: Annotated[Positive, Field(description="samples in a batch, over all ranks")]
    batches: Annotated[Positive, Field(description="in one call")]
    benchmark: Annotated[Positive, RUNG]
    beside: Annotated[Name, Field(description="the library's pipeline in whose rounds ours was timed")]
    bf16: Annotated[Positive, RUNG]
    block: Annotated[Index, Field(description="of a model, from 0")]
    bytes: Annotated[Positive, Field(description="what each device holds or copies")]
    call: Annotated[Name, Field(description="blocking or non_blocking")]
    channels_last: Annotated[Positive, RUNG]
    checkpointing: Annotated[Name, Field(description="of a recipe: blocks (they run again), selective or none")]
    collective: Annotated[Name, Field(description="all_reduce, all_gather, reduce_scatter, all_to_all or broadcast")]
    compile: Annotated[Positive, RUNG]
    copy: Annotated[Name, Field(description="of a batch to the device: blocking, non_blocking or overlapped")]
    counter: Annotated[Name, Field(description="of errors: 'ECC corrected', 'PCIe replays' ...")]
    cut: Annotated[Name, Field(description="of a model into stages: 'after layer2' or 'balanced'")]
    data: Annotated[Name, Field(description="the images: fashion-mnist or synthetic")]
    device: Annotated[Index, Field(description="its number, from 0")]
    devices: Annotated[Positive, Field(description="that took part, over all nodes")]
    direction: Annotated[Name, Field(description="of a copy between the host and a device: to device or to host")]
    dtype: Annotated[Name, Field(description="float32, tf32 or bfloat16")]
    fused: Annotated[Positive, RUNG]
    graphs: Annotated[Positive, RUNG]
    image_size: Annotated[Positive, Field(description="pixels along a side")]
    kind: Annotated[MemoryKind, Field(description="what a device's memory is used for")]
    library: Annotated[bool | None, Field(description="whether it is torch.distributed.pipelining's")]
    lr: Annotated[Rate, Field(description="the learning rate")]
    memory: Annotated[Name, Field(description="pageable or pinned")]
    mode: Annotated[Name, Field(description="single, serial or concurrent")]
    node: Annotated[Index, Field(description="its number, from 0")]
    nodes: Annotated[Positive | None, Field(description="that the devices are on, if several")]
    numa_node: Annotated[Index | None, Field(description="whose memory it is; null: the kernel's choice")]
    option: Annotated[Name, Field(description="of DDP")]
    other: Annotated[Index, Field(description="the second node of a pair")]
    pairing: Annotated[Name, Field(description="the names of two unequal devices")]
    part: Annotated[Name, PART]
    peer: Annotated[
        bool | None, Field(description="whether the source can write to the target's memory; null without GPUs")
    ]
    persistent: Annotated[bool | None, Field(description="whether a loader's workers live longer than an epoch")]
    place: Annotated[Name, Field(description="which of two unequal devices is alone, by name")]
    precision: Annotated[Name, Field(description="of a workload's recipe, in strategies and input: bf16; else float32")]
    prefetch: Annotated[Positive, Field(description="batches that each worker of a loader loads ahead")]
    products: Annotated[Positive, Field(description="of matrices in one call")]
    rank: Annotated[Index, Field(description="its number, from 0")]
    ranks: Annotated[Positive, Field(description="processes, over all nodes")]
    saving: Annotated[Name, Field(description="of a checkpoint: one file, in parts, asynchronous or none")]
    scaling: Annotated[Name, Field(description="strong or weak")]
    share: Annotated[
        Index, Field(description="samples of a minibatch: those of the device alone, or those of the first of two")
    ]
    size: Annotated[Positive, Field(description="rows of a square matrix")]
    slowed: Annotated[
        Positive, Field(description="how often the second of two devices does its share, to stand for a slower one")
    ]
    source: Annotated[Index | Literal["host"], Field(description="the device that is copied from, or host")]
    split_size: Annotated[Positive | None, Field(description="samples in a micro-batch")]
    stage: Annotated[Index, Field(description="of a cut model, from 0")]
    start: Annotated[
        Start, Field(description="which weights of the textbook's ResNet-18 are drawn from its distribution")
    ]
    step: Annotated[Name, Field(description="of the textbook: compute, copy ...")]
    steps: Annotated[Positive, Field(description="batches in one call")]
    strategy: Annotated[
        Name,
        Field(
            description="how the model is trained: of a pipeline its schedule, of divided layers column, row or pairs"
        ),
    ]
    target: Annotated[Index | Literal["host"], Field(description="the device that is copied to, or host")]
    textbook: Annotated[bool | None, Field(description="whether this is the textbook's example")]
    tf32: Annotated[Positive, RUNG]
    unit: Annotated[Name, Field(description="what a workload counts: samples or tokens")]
    units: Annotated[Positive, Field(description="samples or tokens in a step, over all ranks")]
    way: Annotated[Way, Field(description="to train an epoch, where that is what varies")]
    workers: Annotated[Index, Field(description="processes of a loader; 0: the training's own reads")]
    workload: Annotated[
        Name, Field(description="what is trained: the name of a built-in one, or its name in config.yaml")
    ]


@with_config(OPEN)
class Settings(TypedDict, total=False):
    """The values of config.yaml that this was measured with; here are those that the report computes with."""

    batch_size: Positive
    batch_sizes: Sweep
    batches: Positive
    bytes: Sweep
    data_dir: str
    epochs: Positive
    image_size: Positive
    lr: Rate
    lrs: Annotated[list[Rate], Several]
    measure: dict[str, Any]
    models: Annotated[list[Name], Several]
    products: Positive
    size: Positive
    sizes: Sweep
    split_sizes: Sweep
    train_images: Positive | None


def rate_for(lr: float, num_devices: int) -> float:
    """A learning rate that grows with the devices, without the last digits that 3 * 0.1 has."""
    return round(lr * num_devices, 12)


def axis_label(axis: str) -> str:
    """What stands before a value on this axis: 'batch size', or nothing."""
    return LABELS.get(axis, axis.replace("_", " "))


def rungs_of(case: Case) -> tuple[str, ...]:
    """The rungs that are on, in the order in which they were added."""
    places = {rung: case[rung] for rung in RUNGS if rung in case}
    return tuple(sorted(places, key=lambda rung: places[rung] or 0))


def parts_of(case: Case) -> list[str]:
    """What makes it another step than the plain one, the last addition last: rungs, 'accumulate 4', 'batch x2'."""
    count, factor = case.get("accumulate"), case.get("batch_factor")
    return [*rungs_of(case), *[f"accumulate {count}"] * bool(count), *[f"batch x{factor}"] * bool(factor)]


def combination(case: Case) -> str:
    """'bf16 + fused', or 'float32'."""
    return " + ".join(parts_of(case)) or BASELINE
