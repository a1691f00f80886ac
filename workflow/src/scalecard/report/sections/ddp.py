"""How well does DistributedDataParallel scale, how much communication does it hide, and which options pay?

Efficiency over the number of ranks, a panel per model: the share of what one device trains per second without DDP that
each rank keeps, with the batch shared by all (strong) or kept on each rank (weak); 100 % is ideal. Then, on this
platform, the time of a step with each option over the default's in the same rounds, left of 1 is faster; and test
accuracy after each epoch on each number of ranks, which share a batch, so that the curves should coincide. Bands and
whiskers are 95 % intervals. On one rank alone: the time of a step with DDP beside a plain one. A sentence per model
says how long a step takes that one process does with all devices, by hand or by nn.DataParallel.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from matplotlib.figure import Figure

from scalecard.analysis import formatting
from scalecard.analysis.learning import compare_learning
from scalecard.analysis.step_records import APART, options_of, per_batch
from scalecard.analysis.strategy_choice import StrategyRun, ddp_runs, timed
from scalecard.figures import charts, layout, points, style
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio
from scalecard.records.strategies import BY_HAND, DATA_PARALLEL, DDP
from scalecard.report.sections import Finding, Number, Topic, accuracies, not_measured, on_most

RESNETS = ("resnet18", "resnet18_quarter", "resnet18_eighth")


def plot(results: Sequence[Result]) -> Figure:
    """Efficiency by ranks, a panel per model, and relative step time by option; accuracy by epoch."""
    here, models = results[0], results[0].spec["models"]
    trained = _trained(here)
    several = any(record.case["devices"] != 1 for result in results for record in result.select("step_time"))
    figure, panels = layout.panels((len(models) + 1 if several else 1) + len(trained))
    if several:
        for model, axes in zip(models, panels, strict=False):
            shown = [point for result in results for point in _efficiencies(result, model, alone=len(results) == 1)]
            charts.curves(shown, axes, unit="share", xlabel="ranks", ylabel="efficiency", ticked=True)
            axes.axhline(1, color=style.colour("ideal"), linestyle=":")
            axes.set(title=formatting.model_name(model), ylim=(0, None))
        charts.ratios(_relative(here), panels[len(models)])
        title = f"options, {formatting.model_name(models[-1])}"
        panels[len(models)].set(xlabel="change of a step's time from the default", ylabel="", title=title)
    else:
        charts.bars(_on_one_rank(results), panels[0], unit="s", xlabel="time of a step", title="on one rank")
    for (title, curves), axes in zip(trained.items(), panels[len(panels) - len(trained) :], strict=True):
        charts.accuracies(here, curves, axes, title=title)
    return figure


def _on_one_rank(results: Sequence[Result]) -> list[points.Point]:
    """A plain step and DDP's, of each model."""
    return [
        points.timed(result, record, series=series, x=formatting.model_name(model))
        for result in results
        for model in result.spec["models"]
        for series, scaling in (("plain", "plain"), ("DDP", "strong"))
        if (record := result.find("step_time", workload=model, scaling=scaling, devices=1))
    ]


def _trained(result: Result) -> dict[str, dict[str, Record]]:
    """Accuracies on every number of ranks, by the titles of their panels: those over nodes have their own."""
    curves, found = result.select("accuracy"), dict[str, dict[str, Record]]()
    for model, nodes in product(result.spec["accuracy_models"], formatting.spans(curves)):
        when = formatting.over_nodes(nodes) or " after each epoch"
        if own := _curves(result, model, nodes):
            found[f"{formatting.model_name(model)}: accuracy{when}"] = own
    return found


def _curves(result: Result, model: str, nodes: int | None) -> dict[str, Record]:
    return formatting.by_devices(result.select("accuracy", workload=model, nodes=nodes), "rank")


def _efficiencies(result: Result, model: str, *, alone: bool) -> list[points.Point]:
    """The share of a device's own rate that each rank keeps; beside other platforms of strong scaling within a node."""
    found = list[points.Point]()
    for nodes, kind in product(_spans(result)[: None if alone else 1], ("strong", "weak")[: 2 if alone else 1]):
        for run in _runs(result, model, kind, nodes):
            # On one rank both kinds are the same.
            if run.efficiency:
                series = kind + formatting.over_nodes(nodes)
                found.append(points.compared(result, run.step, run.efficiency, series=series, x=run.devices))
    return found


def _runs(result: Result, model: str, scaling: str, nodes: int | None) -> list[StrategyRun]:
    """DDP's, also on one rank, and without the device that trains without it."""
    own = [run for run in timed(ddp_runs(result), scaling) if run.workload == model and run.strategy == DDP.name]
    return [run for run in own if run.step.case.get("nodes") == nodes]


def _spans(result: Result) -> list[int | None]:
    return formatting.spans(result.select("step_time"))


def _relative(result: Result) -> list[points.Point]:
    found, model = list[points.Point](), result.spec["models"][-1]
    for nodes, options in ((nodes, options_of(result, model, nodes)) for nodes in _spans(result)):
        for name, record in options.items() if "default" in options else ():
            if name not in APART:
                label = name + " (per batch)" * (record.integer("steps", 1) > 1) + formatting.over_nodes(nodes)
                found.append(points.compared(result, record, per_batch(record, options["default"]), series="", x=label))
    return found


def findings(result: Result) -> list[Finding]:
    """Scaling efficiency, hidden communication and the option that pays most, for each model."""
    models, found = result.spec["models"], list[Finding]()
    for nodes in _spans(result):
        for model in models:
            found += [*_scaling(result, model, nodes), *_hidden(result, model, nodes)]
        found += [*_textbooks_claim(result, nodes), *_best_option(result, models[-1], nodes)]
    found += [text for model in models for text in _by_hand(result, model)]
    found += [text for model in result.spec["accuracy_models"] for text in _accuracy(result, model)]
    found = found or [text for model in reversed(models) for text in _wrapping(result, model)]
    return found or [not_measured(result, "step_time", "Not compared", "one rank")]


def _wrapping(result: Result, model: str) -> Iterator[Finding]:
    """What DDP costs where there is nothing to exchange."""
    ours, plain = (
        result.find("step_time", workload=model, scaling=scaling, devices=1) for scaling in ("strong", "plain")
    )
    if ours and plain:
        what = f"On one rank, where there is nothing to exchange, DDP's step of {formatting.model_name(model)}"
        text = formatting.versus(what, ours.over(plain), "a plain one")
        text += f": {formatting.time(ours)} instead of {formatting.time(plain)}."
        yield Finding(text, Topic.OTHER_DDP_SCALING, "one rank")


def _scaling(result: Result, model: str, nodes: int | None) -> Iterator[Finding]:
    leading = Topic.DDP_OVER_NODES if nodes else Topic.DDP_SCALING
    topic = leading if model == result.spec["models"][-1] else Topic.OTHER_DDP_SCALING
    for scaling in ("strong", "weak"):
        most = max(_runs(result, model, scaling, nodes), key=lambda run: run.devices, default=None)
        if most is None or most.devices == 1 or not (most.gain and most.efficiency):
            continue
        share = formatting.percent(most.efficiency.value)
        text = (
            f"DDP's {scaling} scaling of {formatting.model_name(model)} on {most.devices} ranks"
            f"{formatting.over_nodes(nodes)} is {share} efficient: {formatting.factor(most.gain)} the rate of one"
            " device without DDP."
        )
        yield Finding(text, topic, f"{share} {scaling} scaling, {most.devices} ranks")


def _textbooks_claim(result: Result, nodes: int | None) -> Iterator[Finding]:
    """Whether ResNet-18 scales better than LeNet, as the textbook says, which computes less beside its exchange.

    By strong scaling on the most ranks.
    """
    models = result.spec["models"]
    small, large = (_beside_its_exchange(result, model, nodes) for model in (models[0], models[-1]))
    if small is None or large is None or models[0] != "lenet" or models[-1] not in RESNETS:
        return
    one, other = map(formatting.model_name, (models[0], models[-1]))
    (efficiency, share), (better, less) = small, large
    text = (
        f"The textbook expects {other} to scale better than {one}, since it computes longer than it exchanges. Here the"
        f" exchange{formatting.over_nodes(nodes)} takes {formatting.percent(less)} of its computing, {one}'s"
        f" {formatting.percent(share)}; with strong scaling it is {formatting.percent(better.value)} efficient, {one}"
        f" {formatting.percent(efficiency.value)}"
    )
    ours, theirs = better.interval, efficiency.interval
    if not (ours and theirs) or max(ours.low, theirs.low) <= min(ours.high, theirs.high):
        text += "; there is no measurable difference."
    else:
        text += ": it scales better." if better.value > efficiency.value else ": it does not scale better."
    yield Finding(text, Topic.TEXTBOOKS_CLAIM)


def _beside_its_exchange(result: Result, model: str, nodes: int | None) -> tuple[Ratio, float] | None:
    """A model's efficiency on the most ranks, and what exchanging its gradients takes over computing them."""
    most = max(_runs(result, model, "strong", nodes), key=lambda run: run.devices, default=None)
    options = options_of(result, model, nodes)
    if most is None or most.devices == 1 or not (most.efficiency and set(APART) <= set(options)):
        return None
    _, alone, exchange = (options[name] for name in APART)
    return most.efficiency, exchange.median / alone.median


def _hidden(result: Result, model: str, nodes: int | None) -> Iterator[Finding]:
    """1 - (T_sync - T_no_sync) / T_communication, from medians measured in the same rounds.

    Without synchronising, DDP does not broadcast batch normalisation's buffers either, so that counts as exposed.
    """
    options = options_of(result, model, nodes)
    network, over = formatting.model_name(model), formatting.over_nodes(nodes)
    if not set(APART) <= set(options):
        return
    sync, alone, reduce = (options[name] for name in APART)
    if sync.over(alone).verdict == "unclear":
        text = (
            f"{network}'s communication{over} makes no measurable difference: a step takes {formatting.time(sync)} with"
            f" it and {formatting.time(alone)} without."
        )
    else:
        exposed = sync.median - alone.median
        hidden = 1 - exposed / reduce.median
        text = (
            f"Of {network}'s communication{over} ({formatting.time(reduce)} alone),"
            f" {formatting.seconds(max(0.0, exposed))} per step is exposed, including the buffers' broadcast:"
            f" {formatting.percent(hidden) if hidden > 0 else 'none of it'} is hidden."
        )
    yield Finding(text, Topic.HIDDEN_COMMUNICATION)


def _best_option(result: Result, model: str, nodes: int | None) -> Iterator[Finding]:
    options = options_of(result, model, nodes)
    choices = [name for name, record in options.items() if name not in APART and record.case["steps"] == 1]
    if choices and (default := options.get("default")):
        ratios = {name: options[name].over(default) for name in choices}
        name = min(ratios, key=lambda name: ratios[name].value)
        network = formatting.model_name(model)
        what = f"The best option other than accumulation for {network}{formatting.over_nodes(nodes)}, {name},"
        yield Finding(formatting.versus(what, ratios[name], "DDP's defaults") + ".", Topic.BEST_OPTION)


def _by_hand(result: Result, model: str) -> Iterator[Finding]:
    """The hand-written way beside the framework's two, on the most devices of a node, in the same rounds."""
    for ours in formatting.largest(result.select("step_time", workload=model, strategy=BY_HAND), "devices"):
        step, count, told = f"A step of {formatting.model_name(model)}", ours.integer("devices"), list[str]()
        for name, kind in {"DDP": DDP, "nn.DataParallel": DATA_PARALLEL}.items():
            if other := result.find("step_time", workload=model, strategy=kind.name, devices=count):
                who = "That step" if told else f"{step} by hand-written data parallelism on {count} devices"
                text = formatting.versus(who, ours.over(other), f"one by {name}")
                took = map(formatting.time, [other] if told else [ours, other])
                told.append(f"{text}: {' and '.join(took)}.")
        if told:
            yield Finding(" ".join(told), Topic.BY_HAND)


def _accuracy(result: Result, model: str) -> Iterator[Finding]:
    curves = result.select("accuracy", workload=model)
    alone = [record for record in curves if record.integer("devices") == 1]
    for nodes in formatting.spans(curves):
        others = [record for record in curves if record.case.get("nodes") == nodes and record not in alone]
        for found in compare_learning(result, [*alone, *others]):
            yield accuracies(found, "rank", f"{formatting.model_name(model)}{formatting.over_nodes(nodes)}: ")


def nightly(result: Result) -> Iterator[Number]:
    """A step of each model at the shared batch, on most ranks, within a node and over nodes."""
    for model in result.spec["models"]:
        for nodes, most in on_most(result.select("step_time", workload=model, scaling="strong")):
            for record in most:
                where = f"{record.case['devices']} ranks{formatting.over_nodes(nodes)}"
                yield Number(f"step of {formatting.model_name(model)} on {where}", record)
