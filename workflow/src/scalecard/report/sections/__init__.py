"""One module per section of the report, always of the same shape.

A docstring (its first line is the section's title, the rest says how to read the figure), `plot(results) -> Figure` for
one experiment's results, the current platform's first, and for one result `findings(result) -> list[Finding]` and
`nightly(result) -> Iterator[Number]`, what to follow from night to night. A module may also offer `published(result)
-> Iterator[Ours]`, our values of the published metrics with their settings, `judge(result)`, its rates beside the
hardware's limits, `tiles(result)`, a verdict and a number for each part of the machine, `topology(result)`, how its
GPUs are linked, and `overview(result)`, one table of everything. No torch here.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from types import ModuleType
from typing import Any

from scalecard.analysis import formatting, learning, limits
from scalecard.analysis.learning import Learning
from scalecard.analysis.published_figures import Ours, Part
from scalecard.records.axes import BASELINE, Scalar, rungs_of
from scalecard.records.record import Record, Result
from scalecard.report import toc

TRAIN_IMAGES = 60_000  # of Fashion-MNIST
# What the time of an epoch has besides training, by the way to train it: that of all, or as textbooks print it.
INCLUDED: dict[Scalar, tuple[Part, ...]] = {
    None: (),
    "as printed": ("loader", "synchronisation"),
    "loaded": ("loader",),
}


class Topic(IntEnum):
    """What a finding is about, in the order in which findings lead: on the page, and in each section."""

    ALERT = auto()
    ADVICE = auto()
    DDP_SCALING = auto()
    DDP_OVER_NODES = auto()
    BEST_PIPELINE = auto()
    FROM_SCRATCH = auto()
    DATA_PARALLEL = auto()
    BEST_STRATEGY = auto()
    HEALTHY = auto()
    PRODUCT_RATE = auto()
    HYBRID = auto()
    TUNED_EPOCHS = auto()
    MODEL_PARALLEL = auto()
    TUNED_STEP = auto()
    ALL_REDUCE = auto()
    DIVIDED_LAYERS = auto()
    LARGEST_TERM = auto()
    CONCURRENCY = auto()
    ALL_REDUCE_OVER_NODES = auto()
    OTHER_DIVIDED_LAYERS = auto()
    UNEQUAL_DEVICES = auto()
    COPY_RATE = auto()
    LOADER_RATE = auto()
    ENQUEUE_SHARE = auto()
    ONE_DEVICE = auto()
    OTHER_CUTS = auto()
    HIDDEN_COMMUNICATION = auto()
    COPY_OVERLAP = auto()
    BEST_OPTION = auto()
    TEXTBOOKS_CLAIM = auto()
    ONE_IS_MOST_EFFICIENT = auto()
    THREADS_OR_PROCESSES = auto()
    LEAST_MEMORY = auto()
    SLOWER_STRATEGIES = auto()
    STAGE_BALANCE = auto()
    FED_STEPS = auto()
    EACH_RUNG = auto()
    RECIPES = auto()
    CHECKPOINTS = auto()
    LARGER_BATCH = auto()
    FORECAST = auto()
    BALANCED_CUT = auto()
    TUNED_SCALING = auto()
    TO_AVOID = auto()
    OTHER_PRODUCTS = auto()
    ONE_BY_ONE = auto()
    DEFAULTS = auto()
    UNSURE_TERM = auto()
    OTHER_DDP_SCALING = auto()
    LIBRARY_PIPELINE = auto()
    PLAYED_PIPELINE = auto()
    PARTITIONS = auto()
    TEXTBOOK_PIPELINE = auto()
    AS_PRINTED = auto()
    TUTORIALS_ORDER = auto()
    BY_HAND = auto()
    HYBRID_AVERAGING = auto()
    WRAPPED_HYBRID = auto()
    OTHER_COPIES = auto()
    MISSING_TERMS = auto()
    EXCHANGED_BYTES = auto()
    STAGE_MEMORY = auto()
    FED_COPIES = auto()
    IDEAL_PIPELINE = auto()
    LOADER_SETTINGS = auto()
    ALL_REDUCE_LATENCY = auto()
    PREDICTED_SHARE = auto()
    RING = auto()
    COMPILING = auto()
    ACCURACY_BY_BATCH = auto()
    TEXTBOOK_RUNS = auto()
    TEXTBOOK_BLOCKS = auto()
    GROWING_BATCH = auto()
    ALL_REDUCE_OF_HEALTH = auto()
    LARGER_BATCHES = auto()
    PRODUCTS_OF_HEALTH = auto()
    ACCURACY = auto()
    UNDER_LOAD = auto()
    NO_VENDOR_FIGURE = auto()
    PARTLY_MEASURED = auto()
    NOT_MEASURED = auto()
    EMULATED = auto()


@dataclass(frozen=True)
class Finding:
    """A sentence computed from records. `headline` is its number in a few characters, for the matrix of platforms."""

    text: str
    topic: Topic
    headline: str = ""


def not_measured(result: Result, metric: str, what: str, headline: str) -> Finding:
    """Why no record of a metric was measured; `what` was not done, e.g. 'Not compared'."""
    return Finding(f"{what}: {formatting.reason(result, metric)}.", Topic.NOT_MEASURED, headline)


@dataclass(frozen=True)
class Number:
    """A number to follow from night to night: a record's time or, with an `amount` in `unit` x s, its rate.

    The same `label` is the same number on every night, so it names sizes, and no device that is slowest by chance.
    """

    label: str
    record: Record
    amount: float = 0.0
    unit: str = "s"

    @property
    def value(self) -> float:
        return self._of(self.record.median)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The value's 95 % interval, the smaller limit first."""
        if (own := self.record.interval) is None:
            return None
        low, high = sorted((self._of(own.low), self._of(own.high)))
        return low, high

    def _of(self, seconds: float) -> float:
        return self.amount / seconds if self.amount else seconds


def on_most(records: Sequence[Record], axis: str = "devices") -> Iterator[tuple[int | None, list[Record]]]:
    """Those on the most devices, or ranks, within a node (None) and over each number of nodes."""
    for nodes in formatting.spans(records):
        yield nodes, formatting.largest([r for r in records if r.case.get("nodes") == nodes], axis)


def bus_bandwidths(records: Sequence[Record]) -> Iterator[Number]:
    """The bus bandwidth of all-reduces at the largest size, on most devices, within a node and over nodes."""
    for nodes, most in on_most(records):
        for record in formatting.largest(most, "bytes"):
            size, count = formatting.count_bytes(record.case["bytes"]), record.case["devices"]
            label = f"all-reduce of {size} on {count} devices{formatting.over_nodes(nodes)}"
            yield Number(label, record, limits.bus_bandwidth(record) * record.median, "GB/s")


def known(values: Mapping[str, float | None], **rest: Any) -> Iterator[Ours]:
    """Our values by metric, those that are known; `rest` is what they share."""
    return (Ours(metric=metric, value=value, **rest) for metric, value in values.items() if value is not None)


def published_epochs(result: Result) -> Iterator[Ours]:
    """Our epochs and the accuracies that they ended with, as the textbooks print them.

    A time holds for any images, an accuracy for these alone. Of several ways to train an epoch (the axis `way`) those
    that no textbook prints are left out. The textbook's first run of ResNet-18 (`start`) comes before ours like it.
    """
    for metric, name in (("epoch_time", "sec_per_epoch"), ("accuracy", "test_accuracy")):
        own = [*result.select(metric, start="not lazy"), *result.select(metric, start=None)]
        for record in own:
            if record.case.get("way") not in INCLUDED or rungs_of(record.case):
                continue
            value, settings = record.median, {axis: record.case.get(axis) for axis in ("batch_size", "lr")}
            trained = result.spec.get("run_images") if "start" in record.case else None
            settings["train_images"] = trained or result.spec.get("train_images") or TRAIN_IMAGES
            settings["precision"] = BASELINE
            if metric == "accuracy":
                value = learning.final(record)
                settings |= {"epochs": len(record.samples[0]), "data": record.case["data"]}
                settings["test_images"] = result.spec.get("test_images") or learning.TEST_IMAGES
            count, includes = record.integer("devices", 1), INCLUDED[record.case.get("way")]
            yield Ours(metric=name, value=value, gpus=count, settings=settings, includes=includes)


def accuracies(found: Learning, kind: str, prefix: str = "") -> Finding:
    """'Test accuracy after 5 epochs is 0.862 on one rank and 0.858 on 2, on synthetic images', and what that says."""
    one, most, count = found.one, found.most, found.most.case["devices"]
    text = (
        f"{prefix}Test accuracy after {len(one.samples[0])} epochs is {learning.final(one):.3f} on one {kind} and"
        f" {learning.final(most):.3f} on {count}, on {one.case['data']} images"
    )
    if found.is_lost:
        lost = f"training on {count} {kind}s does not learn what one does, whatever its speed"
        return Finding(f"{text} (give or take {found.error:.3f}): {lost}.", Topic.ALERT)
    if found.is_chance:
        return Finding(f"{text}: one {kind} did not learn, so accuracy says nothing.", Topic.ACCURACY)
    return Finding(f"{text} (give or take {found.error:.3f}).", Topic.ACCURACY)


def by_topic(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, those to act on first."""
    return sorted(findings, key=lambda finding: finding.topic)


def headline(findings: Sequence[Finding]) -> str:
    """The most important number, in a few characters."""
    return next((finding.headline for finding in by_topic(findings) if finding.headline), "not measured")


def names() -> list[str]:
    """Every section, in alphabetical order."""
    return toc.names(sys.modules[__name__])


def load(name: str) -> ModuleType:
    """The section of this name; ValueError says which ones exist."""
    return toc.load(sys.modules[__name__], name)
