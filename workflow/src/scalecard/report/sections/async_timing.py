"""How long does work take, and how long does launching it take?

Left: TFLOP/s of one device over the size of the matrices, with the device's peak where it is near; in the shaded zone
the host takes nearly all of the time to launch the products. Then, of several devices: the same products on 1..N
devices, one device after the other and all at once; all at once should take as long as one device alone. Last, what
each takes one by one: by so much the whole takes longer with it. Bands are 95 % intervals.
"""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalecard.analysis import by_key, formatting, limits, platforms
from scalecard.analysis.health.verdict import Kind
from scalecard.analysis.limits import Judgement
from scalecard.analysis.published_figures import Ours
from scalecard.figures import charts, layout, points, style
from scalecard.figures.points import Point
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.report.sections import Finding, Number, Topic, known

LARGE = 2048  # rows from which launching a matrix product no longer matters
MODES = ("serial", "concurrent")
DTYPES = ("float32", "tf32", "bfloat16", "float16")  # that are drawn
VISIBLE = 3.0  # times what was measured: a peak beyond would press the lines down
LAUNCHING = 0.9  # of the whole time


def plot(results: Sequence[Result]) -> Figure:
    """TFLOP/s over matrix size; time over devices by mode; time of each device."""
    here = results[0]
    timed = [record for mode in MODES for record in here.select("time", mode=mode)]
    modes = [points.timed(here, r, series=r.text("mode"), x=r.integer("devices")) for r in timed]
    counts = charts.numbers(modes)
    figure, panels = layout.panels(3 if len(counts) > 1 else 1)
    _draw_rates(results, panels[0])
    if len(counts) > 1:
        charts.curves(modes, panels[1], unit="s", xlabel="devices", ylabel="time", title="one by one, or all at once")
        if serial := [point for point in modes if point.series == "serial" and point.x == 1]:
            charts.ideal(panels[1], counts, [serial[0].value] * len(counts))
        panels[1].set_ylim(bottom=0)
        charts.ticks(panels[1], counts)
        platform = platforms.platform_label(here)
        each = [
            Point(series="", x=_named(devices), value=seconds, interval=None, samples=None, platform=platform)
            for devices, seconds in _one_by_one(here).items()
        ]
        charts.bars(each, panels[2], unit="s", xlabel="time", title="each device, one by one")
    return figure


def _draw_rates(results: Sequence[Result], axes: Axes) -> None:
    """Of this platform alone every dtype, with the peak and where launching dominates; of several, the first dtype."""
    several = len(results) > 1
    shown = [
        points.rated(result, r, limits.product_rate(r) * r.median, series=dtype, x=r.integer("size"))
        for result in results
        for r in result.select("time", mode="single")
        if (dtype := r.text("dtype")) in (DTYPES[:1] if several else DTYPES)
    ]
    charts.curves(shown, axes, unit="TFLOP/s")
    for dtype in dict.fromkeys(point.series for point in shown):
        peak = limits.of_products(results[0], dtype)
        if peak and peak.rate <= VISIBLE * max(point.value for point in shown):
            charts.limit(axes, peak.rate, f"peak in {dtype}" + (" here" if several else ""))
    products = results[0].select("time", mode="single", dtype="float32")
    pairs = ((record, results[0].find("enqueue_time", **record.case)) for record in products)
    bound = [r.integer("size") for r, enqueue in pairs if enqueue and enqueue.median > LAUNCHING * r.median]
    if bound:
        axes.axvspan(axes.get_xlim()[0], max(bound), color=style.colour("ideal"), alpha=0.15, linewidth=0)
    across = "rows of the matrices" + "; shaded: launching takes longer" * bool(bound)
    axes.set(xlabel=across, ylabel="TFLOP/s", title="products, one device", xscale="log")
    charts.ticks(axes, sorted(results[0].spec["sizes"]))
    charts.from_zero_or_log(axes, [point.value for point in shown], "TFLOP/s")


def findings(result: Result) -> list[Finding]:
    """Rate and share of the peak, enqueue share, concurrency gain, and where launching dominates."""
    return [*_rates(result), *_enqueue(result), *_concurrency(result)]


def published(result: Result) -> Iterator[Ours]:
    """One device with and without waiting, and its rate; then each one by one, and all at once."""
    size, products = result.spec["size"], result.spec.get("products")
    case: Case = {"dtype": "float32", "size": size, "products": products}
    settings = {"dtype": "float32", "matrix": [size, size], "matmuls_per_run": products}
    single, enqueue = (result.find(metric, mode="single", **case) for metric in ("time", "enqueue_time"))
    if single and enqueue:
        found = {"time_with_sync": single.median, "time_without_sync": enqueue.median}
        yield from known(found | {"fp32_matmul_throughput": limits.product_rate(single)}, settings=settings)
    alone = [seconds for devices, seconds in _one_by_one(result).items() for _ in devices]
    yield from known(dict(zip(("time_gpu1_alone", "time_gpu2_alone"), alone, strict=False)), settings=settings)
    for serial in result.select("time", mode="serial", **case):
        count = serial.integer("devices")
        concurrent = result.find("time", mode="concurrent", devices=count, **case)
        for device, seconds in enumerate(alone[:count]):
            own = settings | {"device": f"cuda:{device}"}
            yield Ours(metric="time_per_gpu_serial", value=seconds, gpus=count, settings=own)
        found = {"time_all_gpus_serial": serial.median}
        if concurrent:
            found |= dict.fromkeys(("time_two_gpus_concurrent", "time_all_gpus_concurrent"), concurrent.median)
            found["concurrent_speedup"] = serial.median / concurrent.median
        yield from known(found, gpus=count, settings=settings)


def _one_by_one(result: Result) -> dict[range, float]:
    """Seconds of a device of those that were added from one number to the next, by which the whole takes longer."""
    found, before, seconds = dict[range, float](), 0, 0.0
    for record in sorted(result.select("time", mode="serial"), key=lambda record: record.integer("devices")):
        count = record.integer("devices")
        found[range(before, count)] = (record.median - seconds) / (count - before)
        before, seconds = count, record.median
    return found


def _named(devices: range) -> str:
    """'device 0', 'each of 2 to 3'."""
    return f"device {devices[0]}" if len(devices) == 1 else f"each of {devices[0]} to {devices[-1]}"


def judge(result: Result) -> Iterator[Judgement]:
    """The largest product of each dtype, compared with the chip's dense peak."""
    for dtype, largest in _largest(result).items():
        limit, rows = limits.of_products(result, dtype), largest.integer("size")
        if limit and rows >= LARGE:
            what = f"{dtype.capitalize()} products of {rows} rows"
            yield limits.rated(what, limits.product_rate(largest), limit, "TFLOP/s", Kind.COMPUTE, [0])


def _largest(result: Result) -> dict[str, Record]:
    by_dtype = by_key((record.text("dtype"), record) for record in result.select("time", mode="single"))
    return {dtype: max(own, key=lambda record: record.integer("size")) for dtype, own in by_dtype.items()}


def _rates(result: Result) -> Iterator[Finding]:
    topic = Topic.PRODUCT_RATE
    for dtype, record in _largest(result).items():
        limit, rate = limits.of_products(result, dtype), limits.product_rate(record)
        share = f", {formatting.percent(rate / limit.rate)} of the device's peak of {limit.rate:g}" if limit else ""
        reached, size = formatting.rate(record, rate * record.median), record.case["size"]
        text = f"One device multiplies {dtype} matrices of size {size} at {reached} TFLOP/s{share}."
        yield Finding(text, topic, f"{formatting.number(rate)} TFLOP/s {dtype}")
        topic = Topic.OTHER_PRODUCTS


def _enqueue(result: Result) -> Iterator[Finding]:
    size = result.spec["size"]
    enqueue = result.find("enqueue_time", mode="single", dtype="float32", size=size)
    complete = result.find("time", mode="single", dtype="float32", size=size)
    if enqueue and complete:
        share = formatting.percent(enqueue.median / complete.median, 2)
        text = (
            f"Without synchronising you would measure {formatting.seconds(enqueue.median)} at size {size}, not"
            f" {formatting.time(complete)}: {share} of the true time."
        )
        yield Finding(text, Topic.ENQUEUE_SHARE, f"{share} seen without waiting")


def _concurrency(result: Result) -> Iterator[Finding]:
    for serial in formatting.largest(result.select("time", mode="serial"), "devices")[:1]:
        count = serial.integer("devices")
        concurrent = result.find("time", mode="concurrent", devices=count)
        if concurrent and count > 1:
            gain = formatting.speedup(concurrent, serial)
            text = (
                f"Enqueued on {count} devices at once, the same work is done {formatting.factor(gain)} as fast as one"
                f" by one; ideal is {count}x."
            )
            yield Finding(text, Topic.CONCURRENCY, f"{gain.value:.2f}x on {count} devices")
            each = ", ".join(f"{formatting.seconds(one)} on {_named(own)}" for own, one in _one_by_one(result).items())
            yield Finding(f"One by one, the same products take {each}.", Topic.ONE_BY_ONE)


def nightly(result: Result) -> Iterator[Number]:
    """The rate of each dtype's largest product."""
    for dtype, largest in _largest(result).items():
        amount = limits.product_rate(largest) * largest.median
        yield Number(f"{dtype} products of {largest.case['size']} rows", largest, amount, "TFLOP/s")
