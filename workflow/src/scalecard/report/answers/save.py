"""What does a checkpoint cost?

Seconds that training loses each time it saves its parameters, buffers and optimiser states to data_dir. In one file, or
in parts of all ranks, it stands still until all is written; beside training it waits for a copy in the host's memory,
and steps may be slower while a thread writes that. Whiskers are 95 % intervals.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from scalecard.analysis import by_key, formatting
from scalecard.analysis.checkpoint_cost import Cost, cheapest, costs
from scalecard.analysis.platforms import PlatformResults
from scalecard.figures import charts, layout
from scalecard.figures.points import Point
from scalecard.records.statistics import Interval
from scalecard.report.sections import Finding, Topic
from scalecard.report.sections.strategies import with_recipe
from scalecard.report.table import EMPTY, Cell, Table

WAYS = {"one file": "in one file", "in parts": "in parts", "asynchronous": "beside training"}
LEAST = 1e-4  # a smaller share of the time is said to be less than that


def plot(measured: PlatformResults) -> Figure:
    """A panel per workload, a bar per way."""
    result, found = measured.of("strategies"), by_key((each.workload, each) for each in _costs(measured))
    shown = [[_point(each, measured.platform) for each in own] for own in found.values()]
    figure, panels = layout.panels(len(found))
    for axes, name, own in zip(panels, found or [""], shown or [[]], strict=True):
        charts.bars(own, axes, unit="s")
        axes.set(xlabel="time that training loses", ylabel="")
        axes.set_title(with_recipe(result, name) if result and name else "")
    return figure


def _costs(measured: PlatformResults) -> list[Cost]:
    result = measured.of("strategies")
    return costs(result) if result else []


def _point(found: Cost, platform: str) -> Point:
    value, samples = max(0.0, found.lost), found.record.num_samples
    return Point(series="", x=WAYS[found.way], value=value, interval=found.interval, samples=samples, platform=platform)


def findings(measured: PlatformResults) -> list[Finding]:
    """Of every workload, the way that costs the least."""
    found = _costs(measured)
    names = dict.fromkeys(each.workload for each in found)
    return [_cheapest(best, found) for name in names if (best := cheapest(found, name))]


def _cheapest(best: Cost, found: Sequence[Cost]) -> Finding:
    others = [each for each in found if each.workload == best.workload and each is not best]
    instead = ", ".join(f"{WAYS[each.way]} {formatting.seconds(max(0.0, each.lost))}" for each in others)
    devices = best.record.integer("devices")
    on = f" on {devices} devices" if devices > 1 else ""
    what = f"{best.workload}{on}: saving {formatting.count_bytes(best.size)} {WAYS[best.way]} every 30 minutes"
    if best.sure:
        text = f"{what} costs {_share(best)} of the time, {formatting.seconds(best.lost)} each time"
    else:
        most = formatting.seconds(max(0.0, best.at_most))
        text = f"{what} costs no time that can be told from none, at most {most} each time"
    text += f" ({instead})." if instead else "."
    return Finding(text=text, headline=f"{best.workload}: {_share(best)}", topic=Topic.CHECKPOINTS)


def _share(found: Cost) -> str:
    share = found.every_half_hour
    if share < LEAST:
        return f"less than {formatting.percent(LEAST, 2)}"
    return f"{'' if found.sure else 'at most '}{formatting.percent(share, 2)}"


def tables(measured: PlatformResults) -> list[Table]:
    """Every way: what it loses, how large it is, and how long it takes to load."""
    rows = [_row(each) for each in sorted(_costs(measured), key=lambda each: each.workload)]
    note = (
        "Lost: how long training waits; beside training, how much longer the same steps take. Steps meanwhile: over"
        " usual ones. Each was loaded again and compared bit for bit."
    )
    return [Table.of("Checkpoints", rows, note)]


def _bounds(interval: Interval | None) -> str:
    return f" ({formatting.seconds(interval.low)} to {formatting.seconds(interval.high)})" if interval else ""


def _row(found: Cost) -> dict[str, str | Cell]:
    slower, restore = found.slower, found.restore
    return {
        "Workload": found.workload,
        "Saved": WAYS[found.way],
        "Strategy": found.record.text("strategy"),
        "Devices": Cell(str(found.record.integer("devices")), found.record.integer("devices")),
        "Lost": Cell(formatting.seconds(found.lost) + _bounds(found.interval), found.lost),
        "Every 30 minutes": Cell(_share(found), found.every_half_hour),
        "Steps meanwhile": Cell(formatting.factor(slower), slower.value) if slower else EMPTY,
        "Size": Cell(formatting.count_bytes(found.size), found.size),
        "Loading it": Cell(formatting.time(restore), restore.median) if restore else EMPTY,
    }
