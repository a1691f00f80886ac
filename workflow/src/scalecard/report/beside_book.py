"""Our values beside the published ones that were measured alike: the most telling, and the folded table of all."""

from collections.abc import Iterator, Sequence
from typing import Any

from scalecard.analysis import by_key, formatting, published_figures
from scalecard.analysis.published_figures import Entry, Match
from scalecard.progress import counted
from scalecard.report.table import Table

# Where the metric's own words do not say enough.
NAMES = {
    "bus_bandwidth": "All-reduce, bus bandwidth",
    "concurrent_speedup": "One by one over all at once",
    "d2h_bandwidth_implied": "Copies to the host",
    "fp32_matmul_throughput": "Products in float32",
    "bfloat16_matmul_throughput": "Products in bfloat16",
    "mfu": "MFU",
    "model_parallel_slowdown": "Model parallelism takes longer than one GPU by",
    "pipeline_fastest_of_three": "Pipelined is the fastest of three",
    "sec_per_epoch": "Time of an epoch",
    "sequential_over_overlapped": "Gain of copying without blocking",
    "single_gpu_faster_than_model_parallel": "One GPU is faster than model parallelism",
    "speedup_2gpu": "Speed-up",
    "speedup_vs_model_parallel": "Pipelined over model parallelism",
    "speedup_vs_single_gpu": "Pipelined, more than one GPU by",
    "time_compute_only": "Computing",
    "time_copy_after_compute": "Copying afterwards",
    "time_compute_and_copy_nonblocking": "Both, without blocking",
    "time_model_parallel": "Model parallelism",
    "time_pipelined": "Pipelined",
    "time_single_gpu": "One GPU",
    "time_with_sync": "Clock stopped after waiting",
    "time_without_sync": "Clock stopped at once",
    "time_all_gpus_concurrent": "All GPUs at once",
    "time_all_gpus_serial": "All GPUs one by one",
    "time_gpu1_alone": "First GPU alone",
    "time_gpu2_alone": "Second GPU alone",
    "time_per_gpu_serial": "Each GPU, one by one",
    "time_two_gpus_concurrent": "Both GPUs at once",
    "tokens_per_second_per_gpu": "Tokens per second and GPU",
}
UNITS = {"fraction": "share", "s/epoch": "s"}
PARTS = {
    "loader": "loading and converting images",
    "synchronisation": "waiting for the GPUs after every batch",
    "inputs": "drawing the inputs on the CPU",
}
TOLD = ("bytes", "size", "split_size")  # settings by which values of a metric differ


def table(experiment: str, matches: Sequence[Match], device: str, *, hidden: bool) -> Table:
    """Each of our values beside the publications that tell most, and how they differ; `hidden`: without accuracies."""
    shown = sorted(_most_telling(matches, device), key=lambda match: match.ours.gpus)
    every = by_key((match.entry.metric, match) for match in matches)  # in the order of published.yaml
    rows = [
        {"What": name(metric), "On": place, "By": by, "Published": ", ".join(published), "Here": ", ".join(ours)}
        for metric in every
        for (place, by), published, ours in _places([match for match in shown if match.entry.metric == metric])
    ]
    notes = list[str]()
    if parts := dict.fromkeys(part for match in shown for part in match.besides):
        included = " and ".join(PARTS[part] for part in parts)
        notes.append(f"Published times include {included}; yours do not, unless they are as printed.")
    if hidden:
        notes.append("Accuracies are not compared: your images are synthetic.")
    if any(match.entry.gpu is None for match in shown):
        notes.append("Where no card is named, the source names none.")
    return Table.of(f"Beside what was published, {experiment}", rows, " ".join(notes))


def _most_telling(matches: Sequence[Match], device: str) -> Iterator[Match]:
    """Of each of our values the text's own and the same card's, if there are any, and if not another one's.

    Of several the nearest in its settings.
    """
    for own in by_key((id(match.ours), match) for match in matches).values():
        own.sort(key=lambda match: -match.nearness)
        texts = [match for match in own if match.entry.kind == "text"]
        same = [match for match in own if published_figures.is_same_card(device, match.entry.gpu)]
        others = sorted(own, key=lambda match: (match.entry.kind == "notes", -match.nearness, match.entry.gpu is None))
        telling = [*texts[:1], *same[:1]] or others[:1]
        yield from {id(match): match for match in telling}.values()


def _places(matches: Sequence[Match]) -> Iterator[tuple[tuple[str, str], list[str], list[str]]]:
    """What one source published of one metric, and ours: several on as many GPUs are each of one of them."""
    for place, own in by_key(((_place(match.entry), match.entry.short), match) for match in matches).items():
        printed = [", as printed" if match.ours.includes else "" for match in own]
        here = [of(match.entry, match.ours.value) + way for match, way in zip(own, printed, strict=True)]
        yield place, [of(match.entry) for match in own], here


def name(metric: str) -> str:
    """A metric in words."""
    return NAMES.get(metric, formatting.spaced(metric).capitalize())


def of(entry: Entry, value: float | None = None) -> str:
    """The published value, or another one, in the entry's unit."""
    shown = entry.value if value is None else value
    if entry.unit == "bool":
        return "yes" if shown else "no"
    if entry.unit == "%":
        return formatting.percent(shown / 100)
    return formatting.of(shown, UNITS.get(entry.unit, entry.unit))


def _place(entry: Entry) -> str:
    """'2 GPUs', '8 x NVIDIA H200, 256 MiB'."""
    where = f"{entry.gpus} x {entry.gpu}" if entry.gpu else counted(entry.gpus, "GPU")
    return ", ".join(filter(None, [where, _detail(entry)]))


def _detail(entry: Entry) -> str:
    """What tells values of a metric apart: 'split size 12', '256 MiB'."""
    return formatting.case({axis: entry.settings[axis] for axis in TOLD if axis in entry.settings})


def rows(entries: Sequence[Entry], matches: Sequence[Match]) -> Iterator[dict[str, Any]]:
    """Of the folded table: every entry, with ours if it was measured alike; of a series each value that was.

    Where in a source it stands is said once.
    """
    found, said = by_key((match.entry.id, match) for match in matches), set[str]()
    for entry in entries:
        pairs = [(match.entry, of(match.entry, match.ours.value)) for match in found.get(entry.id, [])]
        for shown, ours in pairs or [(entry, "")]:
            metric = ", ".join(filter(None, [name(shown.metric), _detail(shown)]))
            where = "" if entry.locator in said else entry.locator
            said.add(entry.locator)
            yield {**vars(shown), "metric": metric, "published": of(shown), "ours": ours, "locator": where}
