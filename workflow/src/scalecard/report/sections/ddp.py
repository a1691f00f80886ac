"""How well does DistributedDataParallel scale, how much communication does it hide, and which options pay?

Left: samples per second over the number of ranks, with the batch shared by all (strong) or kept on each rank (weak),
and this platform's ideal line. Right: time of a step with each option, relative to the default in the same rounds; left
of 1 is faster.
"""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio
from scalecard.report import charts, style, units, words
from scalecard.report.sections import Finding, Number

APART = ("default", "no_sync", "all-reduce alone")  # these take the step apart; they are not options


def plot(results: Sequence[Result]) -> Figure:
    """Samples per second by ranks; relative step time by option."""
    figure, (left, right) = plt.subplots(1, 2)
    scaling = _throughput(results)
    charts.lines(scaling, x="devices", hue="kind", axes=left)
    counts, here = sorted(scaling["devices"].unique()), scaling["platform"] == style.platform_label(results[0])
    for _, first in scaling[here & (scaling["devices"] == 1)].groupby("model"):
        ideal = [first["value"].median() * count for count in counts]
        left.plot(counts, ideal, ":", color=style.colour("ideal"), label="ideal")
    charts.legend(left)
    left.set(xlabel="ranks", ylabel="samples/s", title="scaling", yscale="log")
    charts.plain_numbers(left.yaxis)
    left.set_xticks(counts)
    charts.intervals(_relative(results), axes=right)
    right.set(xlabel="time relative to the default", ylabel="", title=f"options, {results[0].spec['models'][-1]}")
    sns.despine(figure)
    return figure


def _throughput(results: Sequence[Result]) -> pd.DataFrame:
    """Samples per second; on one rank strong and weak scaling are the same measurement."""
    steps = words.frame(results, "step_time", "scaling", "devices", "model", "batch_size", "nodes")
    steps = steps[steps["scaling"].isin(["strong", "weak"])]
    single = steps[steps["devices"] == 1].assign(scaling="weak")
    both = pd.concat([steps, single], ignore_index=True)
    kind = both["model"] + ", " + both["scaling"] + words.where(both)
    return both.assign(value=both["batch_size"] / both["value"], kind=kind)


def options_of(result: Result, model: str, nodes: int | None) -> dict[str, Record]:
    """A step with each option of DDP, by its name, and what takes the step apart."""
    records = result.select("step_time", model=model, nodes=nodes)
    return {str(r.case["option"]): r for r in records if "option" in r.case}


def per_batch(record: Record, default: Record) -> Ratio:
    """An option's time over the default's; accumulating ones take a step every so many batches."""
    return words.scaled(record.over(default), 1 / float(record.case["steps"] or 1))


def spans(result: Result) -> list[int | None]:
    """The numbers of nodes that steps were measured over."""
    return words.spans(result.select("step_time"))


def _relative(results: Sequence[Result]) -> list[tuple[str, str, float, float, float]]:
    """(option, platform, ratio, low, high) of each option of the last model."""
    rows = []
    for result, nodes in ((each, nodes) for each in results for nodes in spans(each)):
        options = options_of(result, result.spec["models"][-1], nodes)
        if "default" not in options:
            continue
        for name, record in options.items():
            if name in APART:
                continue
            ratio = per_batch(record, options["default"])
            low, high = (ratio.interval.low, ratio.interval.high) if ratio.interval else (ratio.value, ratio.value)
            label = (f"{name} (per batch)" if (record.case["steps"] or 1) != 1 else name) + words.over_nodes(nodes)
            rows.append((label, style.platform_label(result), ratio.value, low, high))
    return rows


def findings(result: Result) -> list[Finding]:
    """Scaling efficiency, hidden communication and the option that pays most, for each model."""
    found = []
    for nodes in spans(result):
        for model in result.spec["models"]:
            found += [*_scaling(result, model, nodes), *_hidden(result, model, nodes)]
        found += _best_option(result, result.spec["models"][-1], nodes)
    return found or [
        Finding(text=f"Not compared: {words.reason(result, 'step_time')}.", headline="one rank", priority=90)
    ]


def _scaling(result: Result, model: str, nodes: int | None) -> list[Finding]:
    single = result.find("step_time", model=model, scaling="strong", devices=1)
    found = []
    for kind in ("strong", "weak"):
        most = words.largest(result.select("step_time", model=model, scaling=kind, nodes=nodes), "devices")
        if single is None or not most or most[0].case["devices"] == 1:
            continue
        count = int(str(most[0].case["devices"]))
        ratio = words.inverse(most[0].over(single))
        efficiency = ratio.value / count if kind == "strong" else ratio.value
        share = units.percent(efficiency)
        per_rank = 1 if kind == "strong" else count
        speed = f"{words.factor(words.scaled(ratio, per_rank))} the samples/s of one rank"
        where = f"on {count} ranks{words.over_nodes(nodes)}"
        text = f"DDP's {kind} scaling of {model} {where} is {share} efficient: {speed}."
        priority = (9 if nodes else 8) if model == result.spec["models"][-1] else 32
        found.append(Finding(text=text, headline=f"{share} {kind} scaling, {count} ranks", priority=priority))
    return found


def _hidden(result: Result, model: str, nodes: int | None) -> list[Finding]:
    """1 - (T_sync - T_no_sync) / T_communication, from medians measured in the same rounds.

    Without synchronising, DDP does not broadcast batch normalisation's buffers either, so that counts as exposed.
    """
    options = options_of(result, model, nodes)
    if not set(APART) <= set(options):
        return []
    sync, alone, reduce = (options[name] for name in ("default", "no_sync", "all-reduce alone"))
    ratio = sync.over(alone)
    if ratio.verdict == "unclear":
        text = f"{model}'s step with and without communication{words.over_nodes(nodes)} cannot be told apart here"
        return [Finding(text=f"{text} ({words.time(sync)} and {words.time(alone)}).", priority=24)]
    exposed = sync.median - alone.median
    hidden = 1 - exposed / reduce.median
    text = (
        f"Of {model}'s communication{words.over_nodes(nodes)} ({words.time(reduce)} alone),"
        f" {units.seconds(max(0.0, exposed))} per step is exposed, including the buffers' broadcast: "
    )
    text += f"{units.percent(hidden)} is hidden." if hidden > 0 else "none of it is hidden."
    return [Finding(text=text, priority=24)]


def _best_option(result: Result, model: str, nodes: int | None) -> list[Finding]:
    options = options_of(result, model, nodes)
    choices = {n: r for n, r in options.items() if n not in APART and not n.startswith("accumulate")}
    if not choices or "default" not in options:
        return []
    name, best = min(choices.items(), key=lambda item: item[1].over(options["default"]).value)
    text = (
        words.versus(
            f"The best option other than accumulation for {model}{words.over_nodes(nodes)}, {name},",
            best.over(options["default"]),
            "DDP's defaults",
        )
        + "."
    )
    return [Finding(text=text, priority=26)]


def nightly(result: Result) -> Iterator[Number]:
    """A step of each model at the shared batch, on most ranks, within a node and over nodes."""
    for model in result.spec["models"]:
        for nodes in spans(result):
            records = result.select("step_time", model=model, scaling="strong", nodes=nodes)
            for record in words.largest(records, "devices"):
                label = f"step of {model} on {record.case['devices']} ranks{words.over_nodes(nodes)}"
                yield Number(label=label, record=record)
