"""Published figures and vendors' peak rates, with which the measured numbers are compared."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[3] / "reference"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A figure that somebody else measured on the same workload."""

    id: str
    metric: str
    value: float
    unit: str
    gpu: str | None
    gpus: int | None
    settings: dict[str, Any]
    note: str
    source: str
    locator: str
    url: str


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
    return [
        Entry(
            **{key: entry[key] for key in ("id", "metric", "value", "unit", "gpu", "gpus", "settings")},
            note=entry.get("note", ""),
            source=(source := data["sources"][entry["source"]])["title"],
            locator=source["locator"],
            url=source["url"],
        )
        for entry in own
        if entry.get("comparability", "strict") == "strict"
    ]


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
                nvlink_one_way_gbs=facts["gpu_link"]["one_way_gbs"],
                nvlinks=facts["gpu_link"].get("links"),
                host_link=facts.get("host_link", {}).get("kind", ""),
                host_link_one_way_gbs=facts.get("host_link", {}).get("one_way_gbs"),
                source=facts["source"],
            )
    return None
