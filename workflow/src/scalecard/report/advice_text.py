"""What the numbers of a workload come down to, in four sentences at most."""

from collections.abc import Iterator
from dataclasses import replace

from scalecard.analysis import by_key, formatting
from scalecard.analysis.platforms import PlatformResults
from scalecard.analysis.setting_gains import Change, best, changes
from scalecard.analysis.strategy_choice import (
    TOO_LARGE,
    Choice,
    StrategyRun,
    avoid,
    batches,
    best_by_recipe,
    choose,
    ddp_runs,
    fewest,
    not_compared,
    on,
    recipe_runs,
    strategy_runs,
    timed,
    workloads,
)
from scalecard.records.axes import Case
from scalecard.records.record import Result
from scalecard.report.sections import Finding, Topic, strategies


def advice(measured: PlatformResults) -> list[Finding]:
    """All sentences: four per workload at most, then those on settings that are not the defaults."""
    result = measured.of("strategies")
    found = [one for name in workloads(result) for one in sentences(result, name)] if result else []
    others = (*on_defaults(changes(measured)), *on_data_parallel(measured))
    return [*found, *(Finding(text=text, topic=Topic.DEFAULTS) for text in others)]


def sentences(result: Result, workload: str) -> list[Finding]:
    """What to use, what other recipes would bring, how many samples each device should have, and what to avoid."""
    found = strategy_runs(result, workload)
    every = (*_use(result, found), *_recipes(result, workload), *_batch(result, workload, found), *_avoid(found))
    recipe = strategies.with_recipe(result, workload)
    return [replace(o, text=f"{recipe}: {o.text}.", headline=o.headline and f"{recipe}: {o.headline}") for o in every]


def gist(result: Result, workload: str) -> str:
    """What to use, in a few words: 'DDP on 4 devices'; '' if nothing is to be said."""
    return next((one.headline for one in _use(result, strategy_runs(result, workload))), "")


def _use(result: Result, found: list[StrategyRun]) -> Iterator[Finding]:
    choice, too_large = choose(found, "strong"), [run for run in found if run.status == TOO_LARGE]
    if (lost := not_compared(found)) and not (choice and choice.best.devices > 1):
        names = ", ".join(dict.fromkeys(run.where for run in lost))
        text = f"nothing is recommended, since not all could be compared ({names}: {lost[0].step.why})"
        yield Finding(text=text, headline="not all could be compared", topic=Topic.ADVICE)
    elif choice and any(run.devices > 1 for run in timed(found, "strong")):
        yield Finding(text=_chosen(result, choice, found), headline=choice.best.where, topic=Topic.ADVICE)
    elif needs := _needs(found):
        yield Finding(text=needs, headline=f"fits on {on(fewest(found)[0].devices)}", topic=Topic.ADVICE)
    elif too_large and not fewest(found):
        most = on(max(run.devices for run in too_large))
        text = f"it fits nowhere up to {most}, by any strategy; try a smaller batch, or more devices"
        yield Finding(text=text, headline="fits nowhere", topic=Topic.ADVICE)


def _chosen(result: Result, choice: Choice, found: list[StrategyRun]) -> str:
    best = choice.best
    runner_up = "".join(
        f"; {formatting.versus(f'the runner-up, {run.where},', ratio, 'it')}" for run, ratio in choice.others[:1]
    )
    if best.devices == 1:
        return f"with the same batch one device will do, since nothing on several is surely faster{runner_up}"
    what = f"{needs}; " if (needs := _needs(found)) else f"with the same batch of {best.batch:g} samples "
    return f"{what}use {best.where}: {_measures(result, best)}{runner_up}"


def _needs(found: list[StrategyRun]) -> str:
    """The fewest devices, if one does not do; '' if it does, or if nothing says that it does not."""
    least = fewest(found)
    if not least or least[0].devices == 1 or all(p.status != TOO_LARGE for p in found if p.devices == 1):
        return ""
    names = ", ".join(run.strategy for run in least)
    return f"it does not fit on one device, but on {least[0].devices} (by {names})"


def _measures(result: Result, best: StrategyRun) -> str:
    parts = [f"{formatting.count(best.rate)} {best.unit}/s"]
    if best.gain and best.efficiency:
        efficient = f"{formatting.percent(best.efficiency.value)} efficient"
        parts[:0] = [f"{formatting.factor(best.gain)} the rate of one device", efficient]
    memory = strategies.memory(result, best.step).text
    return ", ".join([*parts, f"{memory} on the fullest device"] if memory else parts)


def _batch(result: Result, workload: str, found: list[StrategyRun]) -> Iterator[Finding]:
    """Where scaling collapses, how far down it holds, and what it brings if the batch grows with the devices."""
    if not any(run.fits and run.devices > 1 for run in found):
        return
    tried = batches(result, workload, found)
    down, least, parts = tried.collapse, tried.least, list[str]()
    if down:
        share = f"{formatting.share(down.share)} of a device's full rate"
        parts.append(f"scaling collapses at {_samples(down.batch)} per device, where {down.what} does {share}")
    if least:
        holds = f"{_samples(least.batch)} per device ({least.what}: {formatting.share(least.share)} efficient)"
        parts.append(f"it holds at {holds}" if down else f"scaling holds down to {holds}")
    weak = choose([run for run in found if run.devices > 1], "weak")
    if weak and weak.best.efficiency:
        each = weak.best.batch / weak.best.devices
        share = formatting.share(weak.best.efficiency)
        parts.append(f"with {_samples(each)} on each, {weak.best.where} is {share} efficient")
    if parts:
        yield Finding(text="; ".join(parts), topic=Topic.LARGER_BATCH)


def _recipes(result: Result, workload: str) -> Iterator[Finding]:
    """By each other recipe its best strategy beside the best by the workload's own; and whether that one changes."""
    found = list(best_by_recipe(recipe_runs(result, workload)))
    if len(found) < 2 or not found[0].best.own:
        return
    own, *others = found
    run, parts = own.best, list[str]()
    for one in (each.best for each in others):
        time = f"{formatting.factor(one.time_over(run))} the time"
        share = formatting.percent(one.memory / run.memory) if one.memory and run.memory else ""
        needs = f"{time} and {share} of the memory" if share else time
        by = f" (by {one.strategy})" if run.devices > 1 else ""
        parts.append(f"{strategies.in_words(*one.recipe)} needs {needs}{by}")
    where = f"{run.where} with {_samples(run.batch / run.devices)}" + (" on each" if run.devices > 1 else "")
    text = f"beside {where}, {'; '.join(parts)}"
    for each in (each for each in others if each.flips(own)):
        theirs, ours = (strategies.in_words(*which.best.recipe) for which in (each, own))
        text += f"; in {theirs} {each.best.strategy} would be the fastest, and in {ours} it is {run.strategy}"
    yield Finding(text=text, topic=Topic.RECIPES)


def _samples(number: float) -> str:
    return f"{number:g} sample{'' if number == 1 else 's'}"


def _avoid(found: list[StrategyRun]) -> Iterator[Finding]:
    """What is to be avoided for the same reason is said together; all of it is on the same number of devices."""
    lost = avoid(found)
    reasons = by_key(
        (why, f"{run.strategy} ({run.gain.value:.2f}x)" if run.gain else run.strategy) for run, why in lost
    )
    if reasons:
        names_and_why = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
        text = f"with the same batch on {on(lost[0][0].devices)}, avoid {names_and_why}"
        yield Finding(text=text, topic=Topic.TO_AVOID)


def on_defaults(found: list[Change]) -> list[str]:
    """One sentence per piece of work: the settings that pay, each by how much, or that none does."""
    sentences = []
    for what, own in by_key((change.what, change) for change in found).items():
        paying = [_change(own, change) for change in best(own)]
        if paying:
            sentences.append(f"{what}: {'; '.join(paying)}.")
        else:
            others = f"of {len(own)} other settings none is" if len(own) > 1 else "the other setting is not"
            sentences.append(f"{what}: keep the defaults; {others} surely faster.")
    return sentences


def _change(found: list[Change], one: Change) -> str:
    number = sum(other.family == one.family for other in found)  # the best of several owes something to chance
    notes = [note for note in (f"the best of {number}" if number > 1 else "", one.but) if note]
    per = " per batch" if one.family == "accumulation" else ""
    return formatting.versus(one.setting, one.ratio, one.instead) + per + (f" ({'; '.join(notes)})" if notes else "")


def on_data_parallel(measured: PlatformResults) -> list[str]:
    """nn.DataParallel of the textbook's network beside DDP, each against one device in its own experiment."""
    threads, ranks = measured.of("dp_concise"), measured.of("ddp")
    if not (threads and ranks):
        return []
    model = threads.spec["model"]
    textbook: Case = {"batch_size": threads.spec["batch_sizes"][0], "lr": threads.spec["lrs"][0]}
    epochs = {record.integer("devices"): record for record in threads.select("epoch_time", **textbook, way=None)}
    most = max(epochs, default=1)
    scaling = [run for run in timed(ddp_runs(ranks), "strong") if run.workload == model and run.nodes == 1]
    gain = next((run.gain for run in scaling if run.devices == most == max(each.devices for each in scaling)), None)
    if most == 1 or 1 not in epochs or not gain:
        return []
    slow = formatting.speedup(epochs[most], epochs[1])
    if slow.interval is None or gain.interval is None or slow.interval.high >= gain.interval.low:
        return []
    one, other = formatting.factor(slow), formatting.factor(gain)
    return [f"{model}: avoid nn.DataParallel: it is {one} as fast on {on(most)} as on one, and DDP {other}."]
