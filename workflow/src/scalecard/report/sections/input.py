"""Does loading keep up with training, and how many processes does it take?

What a loader alone makes per second over the number of its worker processes, one panel per workload; the band holds the
middle half of the samples. Dotted: what one device trains on per second if its data are there already. Diamonds: what
it trains on if a loader feeds it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio
from scalecard.report import charts, style, units, words
from scalecard.report.sections import Finding, Number

EMULATED = " Loading and training share the cores of CPU workers here: a trial of the method, and no advice."
AXES = ("workers", "prefetch", "persistent", "memory", "batch_size")


@dataclass(frozen=True)
class Fed:
    """One workload: resident data and loaders over workers, from the same rounds; then what was compared with them."""

    result: Result
    name: str

    @property
    def resident(self) -> Record | None:
        return self.result.find("step_time", workload=self.name, part="workers", data="resident")

    @property
    def loaders(self) -> list[Record]:
        """By the number of workers."""
        found = self.result.select("load_time", workload=self.name, part="workers")
        return sorted(found, key=workers)

    @property
    def steps(self) -> list[Record]:
        """Those that a loader feeds."""
        return self.result.select("step_time", workload=self.name, part="settings", data="fed")

    @property
    def settings(self) -> list[Record]:
        """Of the loader alone, the usual ones first."""
        return self.result.select("load_time", workload=self.name, part="settings")

    @property
    def fastest(self) -> Record:
        """The loader that makes the most."""
        return min(self.loaders, key=lambda record: record.median)


def fed(result: Result) -> list[Fed]:
    """The workloads of which there are a step on resident data and a loader."""
    names = dict.fromkeys(str(r.case["workload"]) for r in result.records if "workload" in r.case)
    return [one for one in (Fed(result, name) for name in names) if one.resident and one.loaders]


def workers(record: Record) -> int:
    return int(str(record.case["workers"]))


def amount(record: Record) -> float:
    """Samples or tokens of a batch."""
    return float(str(record.case["units"]))


def plot(results: Sequence[Result]) -> Figure:
    """The first platform's rates over workers, a panel per workload."""
    found = fed(results[0])
    figure, panels = plt.subplots(1, max(1, len(found)), squeeze=False, figsize=(4.1 * max(2, len(found)), style.HEIGHT))
    for one, axes in zip(found, panels[0], strict=True) if found else ():
        _draw(one, axes)
    if not found:
        charts.nothing(panels[0][0])
    sns.despine(figure)
    return figure


def _draw(one: Fed, axes: Axes) -> None:
    counts, rates = [workers(r) for r in one.loaders], [amount(r) / r.median for r in one.loaders]
    colour, spread = style.colour("loader alone"), [amount(r) / np.quantile(np.concatenate(r.samples), (0.75, 0.25)) for r in one.loaders]
    axes.plot(counts, rates, style.marker("loader alone"), linestyle="-", color=colour, label="loader alone")
    axes.fill_between(counts, *np.transpose(spread), color=colour, alpha=0.2)
    resident = one.resident
    assert resident, "what has none is not drawn"
    axes.axhline(amount(resident) / resident.median, color=style.colour("ideal"), linestyle=":", label="one device, data resident")
    if one.steps:
        places, fed_rates = [workers(r) for r in one.steps], [amount(r) / r.median for r in one.steps]
        axes.plot(places, fed_rates, "D", color=style.colour("fed"), linestyle="none", label="one device, fed")
    axes.set(xlabel="worker processes of the loader", ylabel=f"{resident.case['unit']} per second", title=one.name, ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    charts.legend(axes)


def findings(result: Result) -> list[Finding]:
    """How many devices the loader feeds, what a step takes that it feeds, and which settings matter."""
    found = fed(result)
    if not found:
        return [Finding(text=f"Not loaded: {words.reason(result, 'load_time')}.", headline="not loaded", priority=90)]
    return [finding for one in found for finding in (_feeds(one), *_steps(one), *_settings(one))]
