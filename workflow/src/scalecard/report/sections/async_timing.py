"""How long does work take, and how long does launching it take?

Left: the same products on 1..N devices, one device after the other and all at once; all at once should take as long
as one device alone. Right: time of the products over matrix size, until they are enqueued and until they are complete;
where the two meet, launching takes all the time. Bands hold the middle half of the samples.
"""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from scalecard.records.record import Case, Record, Result
from scalecard.report import charts, limits, units, words
from scalecard.report.judgements import Judgement, rated
from scalecard.report.sections import Finding, Number

LARGE = 2048  # rows from which launching a matrix product no longer matters
MODES = ("serial", "concurrent")


def plot(results: Sequence[Result]) -> Figure:
    """Time over devices by mode; time over matrix size by when the clock stops."""
    figure, (left, right) = plt.subplots(1, 2)
    modes = words.frame(results, "time", "mode", "devices")
    modes = modes[modes["mode"].isin(MODES)]
    charts.lines(modes, x="devices", hue="mode", axes=left)
    left.set(xlabel="devices", ylabel="time (s)", title="one by one, or all at once")
    left.set_xticks(sorted(modes["devices"].unique()))
    left.set_ylim(bottom=0)
    clocks = {"enqueue_time": "enqueued", "time": "complete"}
    parts = [words.frame(results, m, "size", mode="single", dtype="float32").assign(clock=c) for m, c in clocks.items()]
    charts.lines(pd.concat(parts), x="size", hue="clock", axes=right)
    right.set(
        xlabel="matrix size n (n x n)", ylabel="time (s)", title="enqueued, and complete", xscale="log", yscale="log"
    )
    charts.ticks(right, sorted(results[0].spec["sizes"]))
    sns.despine(figure)
    return figure


def findings(result: Result) -> list[Finding]:
    """Rate and share of the peak, enqueue share, concurrency gain, and where launching dominates."""
    return [*_rates(result), *_enqueue(result), *_concurrency(result)]


def published(result: Result) -> dict[str, float]:
    """Our values of the published metrics, if the workload is the same: 50 products of 4000 x 4000."""
    case: Case = {"dtype": "float32", "size": 4000, "products": 50}
    ours = {
        "time_with_sync": result.find("time", mode="single", **case),
        "time_without_sync": result.find("enqueue_time", mode="single", **case),
        "time_gpu1_alone": result.find("time", mode="serial", devices=1, **case),
        "time_two_gpus_concurrent": result.find("time", mode="concurrent", devices=2, **case),
        "time_all_gpus_serial": result.find("time", mode="serial", devices=4, **case),
        "time_all_gpus_concurrent": result.find("time", mode="concurrent", devices=4, **case),
    }
    return {metric: record.median for metric, record in ours.items() if record}


def judge(result: Result) -> Iterator[Judgement]:
    """The largest product of each dtype, compared with the chip's dense peak."""
    records = result.select("time", mode="single")
    for dtype in dict.fromkeys(str(r.case["dtype"]) for r in records):
        largest = max((r for r in records if r.case["dtype"] == dtype), key=_rows)
        limit = limits.of_products(result, dtype)
        if limit and _rows(largest) >= LARGE:
            what = f"{dtype.capitalize()} products of {_rows(largest):.0f} rows"
            yield rated(what, limits.product_rate(largest), limit, "TFLOP/s")


def _rows(record: Record) -> float:
    return float(record.case["size"] or 0)


def _rates(result: Result) -> list[Finding]:
    found: list[Finding] = []
    for dtype in dict.fromkeys(r.case["dtype"] for r in result.select("time", mode="single")):
        record = words.largest(result.select("time", mode="single", dtype=dtype), "size")[0]
        limit, rate = limits.of_products(result, str(dtype)), limits.product_rate(record)
        share = f", {units.percent(rate / limit.rate)} of the device's peak of {limit.rate:g}" if limit else ""
        reached, size = words.rate(record, rate * record.median), record.case["size"]
        text = f"One device multiplies {dtype} matrices of size {size} at {reached} TFLOP/s{share}."
        found.append(Finding(text=text, headline=f"{units.number(rate)} TFLOP/s {dtype}", priority=30 if found else 12))
    return found


def _enqueue(result: Result) -> list[Finding]:
    size = result.spec["size"]
    enqueue = result.find("enqueue_time", mode="single", dtype="float32", size=size)
    complete = result.find("time", mode="single", dtype="float32", size=size)
    if not (enqueue and complete):
        return []
    share = units.percent(enqueue.median / complete.median, 2)
    text = (
        f"A clock stopped without waiting reads {share} of the true time at size {size}:"
        f" {units.seconds(enqueue.median)} instead of {words.time(complete)}."
    )
    return [Finding(text=text, headline=f"{share} seen without waiting", priority=20)]


def _concurrency(result: Result) -> list[Finding]:
    serial = words.largest(result.select("time", mode="serial"), "devices")
    if not serial or serial[0].case["devices"] == 1:
        return []
    count = serial[0].case["devices"]
    concurrent = result.find("time", mode="concurrent", devices=count)
    if concurrent is None:
        return []
    gain = words.speedup(concurrent, serial[0])
    text = (
        f"Enqueued on {count} devices at once, the same work is done {gain} as fast as one by one; ideal is {count}x."
    )
    return [Finding(text=text, headline=f"{gain.split()[0]} on {count} devices", priority=15)]


def nightly(result: Result) -> Iterator[Number]:
    """The rate of each dtype's largest product."""
    records = result.select("time", mode="single")
    for dtype in dict.fromkeys(str(r.case["dtype"]) for r in records):
        largest = max((r for r in records if r.case["dtype"] == dtype), key=_rows)
        amount = limits.product_rate(largest) * largest.median
        yield Number(
            label=f"{dtype} products of {_rows(largest):.0f} rows", record=largest, amount=amount, unit="TFLOP/s"
        )
