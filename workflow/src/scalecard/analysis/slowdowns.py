"""What becomes slower with more devices than on one or on fewer, at the same batch."""

from collections.abc import Iterator, Mapping

from scalecard.analysis import formatting
from scalecard.analysis.strategy_choice import ddp_runs, on, on_most, strategy_runs, timed, workloads
from scalecard.records.record import Record, Result
from scalecard.records.strategies import FSDP_OFFLOAD, SINGLE

NAMED = 2  # of the strategies that are slower than one device, if they are more


def slowdowns(results: Mapping[str, Result]) -> Iterator[str]:
    """One per workload or model: 'gpt: on 8 devices FSDP parameters (0.82x) is slower than one device'."""
    if measured_runs := results.get("strategies"):
        for workload in workloads(measured_runs):
            every = on_most(strategy_runs(measured_runs, workload))
            others = [run for run in every if run.strategy != FSDP_OFFLOAD.name]  # which gives up time for memory
            gains = sorted((run.gain.value, run.strategy) for run in others if run.gain and run.is_slower)
            names = ", ".join(f"{strategy} ({gain:.2f}x)" for gain, strategy in gains[:NAMED])
            who, most = (f"{len(gains)} strategies", f", most of all {names}") if len(gains) > NAMED else (names, "")
            are = "is" if len(gains) == 1 else "are"
            if gains:
                yield f"{workload}: on {on(every[0].devices)} {who} {are} slower than one device{most}"
    for what, records in _by_devices(results):
        yield from _slower_with_more(what, records)


def _slower_with_more(what: str, records: list[Record]) -> Iterator[str]:
    """The most devices against one device and, if they are faster than that, against the fastest number of them."""
    most = formatting.largest(records, "devices")
    ones = [record for record in records if record.case["devices"] == 1]
    if not (ones and most) or most[0] is ones[0]:
        return
    last, best = most[0], min(records, key=lambda record: record.median)
    where = f"{what} on {on(last.integer('devices'))} ({formatting.speedup(last, ones[0]).value:.2f}x)"
    if last.over(ones[0]).verdict == "slower":
        yield f"{where} is slower than one device"
    elif last.over(best).verdict == "slower":
        yield f"{where} is slower than on {best.case['devices']} ({formatting.speedup(best, ones[0]).value:.2f}x)"


def _by_devices(results: Mapping[str, Result]) -> Iterator[tuple[str, list[Record]]]:
    """(what, its records by devices) of the textbooks' experiments, at the same batch."""
    if scratch := results.get("dp_scratch"):
        yield "Data parallelism from scratch", scratch.select("epoch_time", way=None)
    if threads := results.get("dp_concise"):
        batch, lr = threads.spec["batch_sizes"][0], threads.spec["lrs"][0]
        yield "nn.DataParallel", threads.select("epoch_time", batch_size=batch, lr=lr, way=None)
    if ranks := results.get("ddp"):
        for model in ranks.spec["models"]:
            runs = [run for run in timed(ddp_runs(ranks), "strong") if run.workload == model and run.nodes == 1]
            yield f"{model}: DDP", [run.step for run in runs if run.devices > 1 or run.strategy == SINGLE.name]
    if divided := results.get("tensor_parallel"):
        for model in divided.spec["models"]:
            records = divided.select("step_time", workload=model)
            several = [record for record in records if record.case["devices"] != 1]
            # The way to divide layers that is the fastest on the most devices, beside one device.
            best = min(formatting.largest(several, "devices"), key=lambda record: record.median, default=None)
            if best:
                own = [r for r in records if r.case["devices"] == 1 or r.case["strategy"] == best.case["strategy"]]
                yield f"{model}: tensor parallelism by {best.case['strategy']}", own
