"""What outputs say of steps and their gains, read back as a reader does, and the same worked out from the samples.

A quantity is (experiment, workload, strategy, devices, scaling, what), `what` being the "gain" in rate over one device,
the "time" over one device's, the "efficiency", the "seconds" of a step, or its "rate" per second.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from io import StringIO
from statistics import median

from scalecard.records.record import Record, Result

Quantity = tuple[str, str, str, int, str, str]
MODELS = {"LeNet": "lenet", "ResNet-18": "resnet18"}
SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
FACTOR = r"([\d.]+)x"
PERCENT = r"(\d+) %"
MOST = -1  # of the devices, which a sentence does not always name
STRATEGIES = {"ddp": "DDP", "dp_concise": "DataParallel", "dp_scratch": "by hand"}
NAME, ON = r"(?P<s>[\w -]+?)", r"on (?P<n>\d+) (?:devices|ranks)"
GAIN, SHARE = r"(?P<gain>[\d.]+)x", r"(?P<share>\d+) %"
GAINS = r"(?P<list>[\w -]+ \([\d.]+x\)(?:[,;:]? [\w -]*?(?: \([\d.]+x\)))*)"
# Whose quantity each sentence is about, if it does not say.
SENTENCES = (
    ("strategies", rf"(?P<w>\w+), [\w ,]+: with [\w ]+ use {NAME} {ON}: {GAIN} .{{0,40}}rate of one.+?, {SHARE} eff"),
    ("strategies", rf"(?P<w>\w+), [\w ,]+: with the same batch {ON}, avoid {GAINS}"),
    ("strategies", rf"(?P<w>\w+): {ON} (?:\d+ strategies are slower than one device, most of all )?{GAINS}"),
    ("strategies", rf"(?P<w>\w+(?: \(ddp\))?), (?P<way>strong|weak) scaling: {NAME} {ON}: {GAIN} .+?, {SHARE} eff"),
    ("strategies", rf"(?P<w>\w+), {NAME} {ON}: a step takes (?P<time>[\d.]+) (?P<unit>s|ms|µs)"),
    ("strategies", rf"(?P<w>\w+): {NAME}, the fastest {ON}, takes (?P<less>\d+) % .{{0,20}} less time than one"),
    ("strategies", rf"(?P<w>\w+): {NAME}, {GAIN} \("),
    ("strategies", rf"(?P<w>\w+), [\w ]+ in [\w ,]+? \d+ GPUs {GAIN} ± [\d.]+, {SHARE} of ideal \({NAME}\)"),
    ("ddp", rf"DDP's (?P<way>strong|weak) scaling of (?P<w>[\w-]+) {ON} is {SHARE} efficient: {GAIN}"),
    ("ddp", rf"(?P<w>\w+): avoid nn.DataParallel: .+? {ON} as on one, and DDP {GAIN}"),
    ("ddp", rf"(?P<w>\w+): DDP {ON} \({GAIN}\)"),
    ("dp_concise", rf"(?P<w>\w+): avoid nn.DataParallel: it is {GAIN} .{{0,40}}as fast {ON}"),
    ("dp_concise", rf"nn.DataParallel trains (?P<w>[\w-]+) {GAIN} .{{0,40}}as fast {ON}"),
    ("dp_scratch", rf"from scratch trains LeNet {GAIN} .{{0,40}}as fast {ON}"),
    ("dp_scratch", rf"from scratch {ON} \({GAIN}\)"),
)


@dataclass(frozen=True)
class Claim:
    """A number that an output shows of a quantity; `text` as it stands there, `unit` what it is counted in."""

    quantity: Quantity
    text: str
    unit: float = 1.0

    def agrees(self, value: float) -> bool:
        """Whether it is this value, rounded to the digits that are shown."""
        shown = self.text.replace(",", "")
        whole, _, decimals = shown.partition(".")
        step = 10.0 ** -len(decimals) if decimals else 10.0 ** (len(whole) - len(whole.rstrip("0")))
        return abs(float(shown) - value / self.unit) <= 0.501 * step


def worked_out(results: Sequence[Result]) -> dict[Quantity, float]:
    """Every quantity, from the samples: ratios are medians over the rounds in which both steps were timed."""
    found: dict[Quantity, float] = {}
    for result in results:
        for step in (r for r in result.records if r.samples and r.metric in ("step_time", "epoch_time")):
            if named := _named(result, step):
                alone = _alone(result, step)
                *place, devices, scaling = named
                time = _ratio(step, alone) * _units(alone) / _units(step) if alone else math.inf
                values = {"gain": 1 / time, "efficiency": 1 / time / devices, "time": time, "seconds": step.median}
                values["rate"] = _units(step) / step.median
                for what, value in values.items():
                    found[(*place, devices, scaling, what)] = value  # type: ignore[index]
    return found


def _named(result: Result, step: Record) -> tuple[str, str, str, int, str] | None:
    """What a step is called; None of what is no scaling: options, an epoch as printed, another batch."""
    case, name = step.case, result.experiment
    workload, scaling = step.text("workload", "lenet"), step.text("scaling", "strong")
    devices = step.integer("devices", 1)
    if name == "strategies":
        return name, workload, step.text("strategy"), devices, scaling if devices > 1 else ""
    if name == "ddp" and "scaling" in case:
        plain = scaling == "plain"
        return name, workload, "single device" if plain else "DDP", devices, "" if plain else scaling
    if name == "dp_scratch" and "way" not in case:
        return name, workload, "by hand", devices, scaling
    if name == "dp_concise" and not case.keys() & {"way", "start"}:
        first = result.spec["batch_sizes"][0], result.spec["lrs"][0]
        return (name, workload, "DataParallel", devices, scaling) if (case["batch_size"], case["lr"]) == first else None
    return None


def _alone(result: Result, step: Record) -> Record | None:
    every = [r for r in result.records if r.metric == step.metric and r.samples]
    same = [r for r in every if r.case.get("workload") == step.case.get("workload")]
    if result.experiment == "strategies":
        return next((r for r in same if r.case["strategy"] == "single device"), None)
    if result.experiment == "ddp":
        return next((r for r in same if r.case.get("scaling") == "plain"), None)
    return next(r for r in same if (own := _named(result, r)) and own[3] == 1)


def _units(step: Record) -> int:
    return step.integer("units") if "units" in step.case else step.integer("batch_size", 1)


def _ratio(new: Record, old: Record) -> float:
    rounds = [[entry.rounds_id for entry in record.telemetry] for record in (new, old)]
    if rounds[0] and rounds[0] == rounds[1]:
        return median(
            median(a / b for a, b in zip(x, y, strict=True)) for x, y in zip(new.samples, old.samples, strict=True)
        )
    return new.median / old.median


class _Tables(HTMLParser):
    """The tables of a page, each with its rows as texts, the head first; cells need no end tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")
            self._in_cell = True
        elif tag == "small":
            self._in_cell = False

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th", "table")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.tables[-1][-1][-1] += data


def claims(text: str) -> list[Claim]:
    """Everything that a part of the page, a table as CSV, Markdown or LaTeX, or a sentence says of a quantity."""
    found = list(_of_csv(text)) if text.startswith(("#", "panel,")) and "\n" in text and "," in text else []
    rows = [table for table in _Tables(text).tables if table] if "<table" in text else []
    for head, *body in rows:
        found += [claim for row in body for claim in _of_row(dict(zip(head, row, strict=False)))]
    plain = " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).replace("\\", "").split())
    return [*found, *_of_headings(text), *_of_sentences(plain)]


def _of_csv(text: str) -> Iterator[Claim]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for row in csv.DictReader(StringIO("\n".join(lines))):
        if row.get("speed_up"):
            workload, _, other = row["workload"].partition(" (")
            scaling = row["scaling"] or "strong" * (row["strategy"] == "DDP")  # on one rank
            place = ("ddp" if other else "strategies", workload, row["strategy"], int(row["devices"]), scaling)
            yield Claim((*place, "gain"), row["speed_up"])
            yield Claim((*place, "efficiency"), row["efficiency"])
            yield Claim((*place, "seconds"), row["step_ms"], 1e-3)
            yield Claim((*place, "rate"), row["per_second"])
        elif row.get("panel") and row["unit"] in ("share", "x", "s", "samples/s", "tokens/s"):
            yield from _of_point(row)


def _of_point(row: Mapping[str, str]) -> Iterator[Claim]:
    """A point of a figure: of DDP's efficiency, a strategy's time or rate, or the speed-up of epochs."""
    what = {"share": "efficiency", "x": "gain", "s": "seconds"}.get(row["unit"], "rate")
    panel, series, x = row["panel"], row["series"], row["x"]
    if what == "efficiency" and series in ("strong", "weak") and int(x) > 1:
        yield Claim(("ddp", MODELS[panel], "DDP", int(x), series, what), f"{float(row['value']):.6g}")
    elif what == "gain" and row["x_axis"] == "devices" and int(x) > 1:
        yield Claim(("dp_scratch", "lenet", "by hand", int(x), "strong", what), f"{float(row['value']):.6g}")
    elif what == "rate" and row["x_axis"] == "devices" and int(x) > 1:
        name, _, weak = series.partition(", ")
        place = ("strategies", panel.split(",")[0], name, int(x), "weak" if weak else "strong")
        yield Claim((*place, what), f"{float(row['value']):.6g}")
    elif what == "seconds" and " in " in panel and not series:  # of a recipe
        yield Claim(("strategies", panel.split(",")[0], x, MOST, "strong", what), f"{float(row['value']):.6g}")


def _of_row(row: Mapping[str, str]) -> Iterator[Claim]:
    """A row of a table of strategies; of recipes, whose scaling is another, only those that name theirs."""
    if use := row.get("Use"):
        if gain := re.match(FACTOR, row.get("Gain", "")):
            name, devices = re.fullmatch(r"(.+) on (\d+) devices", use).groups()  # type: ignore[union-attr]
            yield Claim(("strategies", row["Workload"], name, int(devices), "strong", "gain"), gain[1])
    elif row.keys() >= {"Workload", "Strategy", "Devices", "Scaling"}:
        place = ("strategies", row["Workload"], row["Strategy"], int(row["Devices"]), row["Scaling"])
        if gain := re.match(FACTOR, row.get("Gain", "")):
            yield Claim((*place, "gain"), gain[1])
        if share := re.match(PERCENT, row.get("Efficiency", "")):
            yield Claim((*place, "efficiency"), share[1], 1e-2)
        if time := re.match(r"([\d.]+) (s|ms|µs)$", row.get("Step", "")):
            yield Claim((*place, "seconds"), time[1], SECONDS[time[2]])
        if rate := re.match(r"([\d,.]+) \w+/s", row.get("Rate", "")):
            yield Claim((*place, "rate"), rate[1])


def _of_headings(text: str) -> Iterator[Claim]:
    """Tables of Markdown and LaTeX, whose workload and scaling stand above them."""
    workload, scaling, experiment = "", "", ""
    for line in text.splitlines():
        if title := re.search(r"(Strong|Weak) scaling of (\w+)( \\?\(ddp\\?\))?", line.replace("\\_", "_")):
            scaling, workload, experiment = title[1].lower(), title[2], "ddp" if title[3] else "strategies"
        cells = [cell.strip() for cell in re.split(r"[|&]", line.replace("\\\\", "").replace("\\%", "%").strip(" |"))]
        if workload and len(cells) == 9 and cells[1].isdigit():
            devices, gain, share = int(cells[1]), cells[7], cells[8]
            way = scaling if devices > 1 else "strong" * (cells[0] == "DDP")
            place = (experiment, workload, cells[0], devices, way)
            yield Claim((*place, "seconds"), cells[4], 1e-3)
            if gain:
                yield Claim((*place, "gain"), gain)
                yield Claim((*place, "efficiency"), share.split()[0], 1e-2)


def _of_sentences(text: str) -> Iterator[Claim]:
    for experiment, pattern in SENTENCES:
        for match in re.finditer(pattern, text):
            said = match.groupdict()
            workload, _, other = said.get("w", "lenet").partition(" (")
            place = "ddp" if other else experiment, MODELS.get(workload, workload)
            devices, scaling = int(said.get("n", MOST)), said.get("way", "strong")
            for name, gain in re.findall(rf"(?:^|, |; |: )(?:avoid )?([\w -]+?) \({FACTOR}\)", said.get("list", "")):
                yield Claim((*place, name, devices, scaling, "gain"), gain)
            whole = (*place, said.get("s", STRATEGIES.get(experiment, "")), devices, scaling)
            if "gain" in said:
                yield Claim((*whole, "gain"), said["gain"])
            if "share" in said:
                yield Claim((*whole, "efficiency"), said["share"], 1e-2)
            if "time" in said:
                yield Claim((*whole, "seconds"), said["time"], SECONDS[said["unit"]])
            if "less" in said:
                yield Claim((*whole, "time"), str(100 - int(said["less"])), 1e-2)
