"""Published figures, which of our values was measured like each of them, and vendors' peak rates."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

FOLDER = Path(__file__).parents[3] / "reference"
OF_ENTRIES = ("id", "metric", "value", "unit", "gpu", "gpus", "settings", "note", "includes", "over", "series")
Part = Literal["loader", "synchronisation", "inputs"]  # of a published time, besides the work itself
Kind = Literal["text", "edition", "notes", "measurement"]  # of a source


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A figure that somebody else measured on the same workload.

    `kind` and `short` are of its source, as published.yaml explains them. `includes`: what its time has besides the
    work. `series`: values over the setting `over`, of which `value` is one.
    """

    id: str
    metric: str
    value: float
    unit: str
    gpu: str | None
    gpus: int
    settings: dict[str, Any]
    source: str
    locator: str
    url: str
    note: str = ""
    kind: Kind = "measurement"
    short: str = ""
    includes: Sequence[Part] = ()
    over: str = ""
    series: Sequence[tuple[int, float]] = ()

    @property
    def points(self) -> Iterator["Entry"]:
        """The entry itself, or one for each value of its series."""
        if not self.series:
            yield self
        for at, value in self.series:
            yield replace(self, value=value, settings={**self.settings, self.over: at})


@dataclass(frozen=True, kw_only=True)
class Ours:
    """Our value of a published metric, with the settings that matter to it, named as in published.yaml.

    A rate of the hardware itself is told with its `gpu`, because it is compared with the same card's alone. `includes`
    is as of an entry: a case that is timed as the textbook prints it has what the textbook's time has.
    """

    metric: str
    value: float
    gpus: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    gpu: str | None = None
    includes: Sequence[Part] = ()

    def is_like(self, entry: Entry) -> bool:
        """Whether the entry states nothing that was otherwise here."""
        return (
            (self.metric, self.gpus) == (entry.metric, entry.gpus)
            and all(entry.settings.get(name, value) == value for name, value in self.settings.items())
            and (self.gpu is None or is_same_card(self.gpu, entry.gpu))
        )


@dataclass(frozen=True, kw_only=True)
class Match:
    """A published figure, or one of its series, and ours that was measured alike."""

    entry: Entry
    ours: Ours

    @property
    def besides(self) -> list[Part]:
        """What the published time includes and ours does not."""
        return [part for part in self.entry.includes if part not in self.ours.includes]

    @property
    def nearness(self) -> int:
        """How many of our settings it states: what is silent on one may have been measured otherwise."""
        return len(self.entry.settings.keys() & self.ours.settings.keys())


@dataclass(frozen=True, kw_only=True)
class GpuSpec:
    """A vendor's dense peak rates: TFLOP/s by dtype, GB/s one way. None if not verified.

    Shares of the peaks by dtype: `reached` is what healthy cards were seen to reach where a power cap makes it small,
    and `most` where they boost beyond the clock of the sheet.
    `nvlinks` share the NVLinks' rate; `host_link` names what leads to the host if that is not PCIe, and is '' if it is.
    """

    name: str
    peak_tflops: dict[str, float | None]
    reached: dict[str, float]
    most: dict[str, float]
    mem_bw_gbs: float | None
    pcie_one_way_gbs: float | None
    pcie_lanes: int | None
    nvlink_one_way_gbs: float | None
    nvlinks: int | None
    host_link: str
    host_link_one_way_gbs: float | None
    source: str

    @property
    def one_nvlink_gbs(self) -> float | None:
        """GB/s one way of one of its NVLinks."""
        return self.nvlink_one_way_gbs / self.nvlinks if self.nvlink_one_way_gbs and self.nvlinks else None


@functools.cache
def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.load((FOLDER / name).read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return data


def published(experiment: str) -> list[Entry]:
    """The strict entries: those whose workload is the experiment's own."""
    data = _read("published.yaml")
    own = [entry for entry in data["entries"] if entry["experiment"] == experiment]
    strict = [entry for entry in own if entry.get("comparability", "strict") == "strict"]
    return [
        Entry(
            **{key: entry[key] for key in OF_ENTRIES if key in entry},
            source=(source := data["sources"][entry["source"]])["title"],
            locator=source["locator"],
            url=source["url"],
            kind=source["kind"],
            short=source["short"],
        )
        for entry in strict
    ]


def matches(experiment: str, ours: Sequence[Ours]) -> list[Match]:
    """Each entry, or value of its series, beside ours that was measured alike.

    Of several of ours that which lacks the least of what the published time includes, so a case that was timed as
    printed comes before the others; then the first.
    """
    found = []
    for entry in (point for each in published(experiment) for point in each.points):
        alike = [Match(entry=entry, ours=each) for each in ours if each.is_like(entry)]
        found += sorted(alike, key=lambda match: len(match.besides))[:1]
    return found


def is_same_card(name: str, other: str | None) -> bool:
    """Whether two names are a card's, as its driver prints it or as others write it."""
    known, also = (gpu_spec(each or "") for each in (name, other))
    return name == other or (known is not None and also is not None and known.name == also.name)


def chapters(experiment: str) -> list[dict[str, str]]:
    """Title and URL of the pages that teach an experiment's subject; none for one that nobody teaches."""
    data = _read("chapters.yaml")
    return [data["pages"][name] for name in data["experiments"].get(experiment, [])]


def gpu_spec(name: str) -> GpuSpec | None:
    """The vendor's figures for a device, by the name its driver prints or by an alias."""
    for known, facts in _read("gpu_specs.yaml")["gpus"].items():
        if name == known or name in facts["aliases"]:
            return GpuSpec(
                name=known,
                peak_tflops={
                    "float32": facts["fp32_tflops"],
                    "tf32": facts["tf32_tensor_dense_tflops"],
                    "bfloat16": facts["bf16_tensor_dense_tflops"],
                },
                reached=facts.get("reached", {}).get("shares", {}),
                most=facts.get("reached", {}).get("most", {}),
                mem_bw_gbs=facts["mem_bw_gbs"],
                pcie_one_way_gbs=facts["pcie_one_way_gbs"],
                pcie_lanes=facts["pcie_lanes"],
                nvlink_one_way_gbs=facts["gpu_link"]["one_way_gbs"],
                nvlinks=facts["gpu_link"].get("links"),
                host_link=facts.get("host_link", {}).get("kind", ""),
                host_link_one_way_gbs=facts.get("host_link", {}).get("one_way_gbs"),
                source=facts["source"],
            )
    return None
