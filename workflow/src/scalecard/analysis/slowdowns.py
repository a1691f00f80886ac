"""What became slower with more devices than on one or on fewer: that always reaches the first screen."""

from collections.abc import Iterator, Mapping

from scalecard.analysis import formatting
from scalecard.analysis.strategy_choice import on, places, timed, workloads
from scalecard.records.record import Record, Result


def sentences(results: Mapping[str, Result]) -> Iterator[str]:
    """One per workload or model: 'gpt: on 8 devices FSDP parameters (0.82x) is slower than one device'."""
    if "strategies" in results:
        yield from _of_strategies(results["strategies"])
    for what, records in _by_devices(results):
        yield from _of_records(what, records)


def _of_records(what: str, records: list[Record]) -> Iterator[str]:
    """The most devices against one device and, if they are faster than that, against the fastest number of them."""
    most = formatting.largest(records, "devices")
    ones = [record for record in records if record.case["devices"] == 1]
    if not (ones and most) or most[0] is ones[0]:
        return
    last, best = most[0], min(records, key=lambda record: record.median)
    gain = formatting.inverse(last.over(ones[0])).value
    where = f"{what} on {on(last.integer('devices'))} ({gain:.2f}x)"
    if last.over(ones[0]).verdict == "slower":
        yield f"{where} is slower than one device"
    elif last.over(best).verdict == "slower":
        yield f"{where} is slower than on {best.case['devices']} ({formatting.inverse(best.over(ones[0])).value:.2f}x)"


def _of_strategies(result: Result) -> Iterator[str]:
    """With one device's batch, on the most devices."""
    for workload in workloads(result):
        several = [place for place in timed(places(result, workload), "strong") if place.devices > 1]
        most = max((place.devices for place in several), default=0)
        slow = [p for p in several if p.devices == most and p.gain and p.gain.interval and p.gain.interval.high < 1]
        if slow:
            names = ", ".join(f"{place.strategy} ({place.gain.value:.2f}x)" for place in slow if place.gain)
            verb = "is" if len(slow) == 1 else "are"
            yield f"{workload}: on {on(most)} {names} {verb} slower than one device"


def _by_devices(results: Mapping[str, Result]) -> Iterator[tuple[str, list[Record]]]:
    """(what, its records by devices) of the textbooks' experiments, at the same batch."""
    if scratch := results.get("dp_scratch"):
        yield "Data parallelism from scratch", scratch.select("epoch_time")
    if threads := results.get("dp_concise"):
        batch, lr = threads.spec["batch_sizes"][0], threads.spec["lrs"][0]
        yield "nn.DataParallel", threads.select("epoch_time", batch_size=batch, lr=lr)
    if ranks := results.get("ddp"):
        for model in ranks.spec["models"]:
            yield f"{model}: DDP", ranks.select("step_time", workload=model, scaling="strong", nodes=None)
    if divided := results.get("tensor_parallel"):
        for model in divided.spec["models"]:
            yield from _fastest_partition(model, divided.select("step_time", workload=model))


def _fastest_partition(model: str, records: list[Record]) -> Iterator[tuple[str, list[Record]]]:
    """The way to divide layers that is the fastest on the most devices, beside one device, which divides nothing."""
    divided = [record for record in records if record.case["devices"] != 1]
    best = min(formatting.largest(divided, "devices"), key=lambda record: record.median, default=None)
    if best:
        own = [record for record in divided if record.case["strategy"] == best.case["strategy"]]
        ones = [record for record in records if record.case["devices"] == 1]
        yield f"{model}: tensor parallelism by {best.case['strategy']}", [*ones, *own]
