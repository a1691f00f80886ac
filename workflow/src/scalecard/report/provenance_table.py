"""The environments in which platforms were measured, fact by fact, and a row for each platform that is not drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalecard.analysis import formatting, platforms
from scalecard.analysis.provenance import commits
from scalecard.hardware.machine import from_facts
from scalecard.records.record import Result
from scalecard.report import by_key, sections
from scalecard.report.table import Table

PROVENANCE = (
    "fingerprint",
    "torch",
    "torchvision",
    "cuda",
    "cudnn",
    "nccl",
    "nccl_process_group",
    "float32_products",
    "float32_convolutions",
    "python",
    "os",
    "container_engine",
    "container",
    "cpu_governor",
    "cgroup_cpu_max",
    "cgroup_memory_max",
)


def facts(platform: str, results: Sequence[Result]) -> dict[str, Any]:
    """Of one of the platforms that these results are of."""
    own = [r for r in results if r.platform == platform]
    environment = own[0].environment
    machine = environment["machine"]
    # Of the first result that says how NCCL's channels go, and of the first that spans several nodes.
    paths: dict[str, int] = next(filter(None, (r.environment["nccl_paths"] for r in own)), {})
    nodes: list[dict[str, Any]] = next(filter(None, (r.environment["nodes"] for r in own)), [])
    channels = ", ".join(f"{count} by {path}" for path, count in paths.items())
    first, last = (formatting.minute(moment) for moment in (min(r.started for r in own), max(r.finished for r in own)))
    return {
        "platform": platform,
        "facts": {
            "machine": from_facts(machine).describe(),
            "driver": machine["driver"],
            "memory": formatting.count_bytes(environment["ram_bytes"]),
            "locked software": machine["software"],
            **({"further packages": added} if (added := environment.get("packages")) else {}),
            "commit": ", ".join(commits(own)),
            **{formatting.spaced(key): environment.get(key) for key in PROVENANCE},
            "measured": f"{first} to {last} UTC",
            **{
                f"GPU {index}": ", ".join(
                    f"{formatting.spaced(key)} {'not known' if value is None else value}" for key, value in gpu.items()
                )
                for index, gpu in enumerate(environment["gpus"])
            },
            **({"NCCL's channels": channels} if channels else {}),
            **{f"node {index}": _node(node) for index, node in enumerate(nodes)},
        },
        "missing": {formatting.spaced(key): reason for key, reason in environment["missing"].items()},
    }


def _node(node: dict[str, Any]) -> str:
    differs = ", ".join(f"{formatting.spaced(path)} {value}" for path, value in node["differs"].items())
    return f"host {node['host']}" + (f", other than node 0: {differs}" if differs else "")


@dataclass(frozen=True, kw_only=True)
class Brief:
    """One experiment on one platform: its most important number."""

    platform: str
    experiment: str
    device: str
    finished: str
    headline: str

    @classmethod
    def of(cls, result: Result) -> "Brief":
        return cls(
            platform=platforms.platform_label(result),
            experiment=result.experiment,
            device=platforms.device_name(result),
            finished=result.finished,
            headline=sections.headline(sections.load(result.experiment).findings(result)),
        )


def others_table(known: Sequence[Brief], experiments: Sequence[str]) -> Table:
    """The rows, those measured last first; none if every platform is drawn."""
    names = dict.fromkeys([*experiments, *(brief.experiment for brief in known)])
    newest_first = sorted(known, key=lambda brief: brief.finished, reverse=True)
    rows = []
    for platform, own in by_key((brief.platform, brief) for brief in newest_first).items():
        row = {"Platform": platform, "Device": own[0].device, "Measured": formatting.minute(own[0].finished)}
        headlines = {brief.experiment: brief.headline for brief in own}
        rows.append(row | {formatting.spaced(name): headlines.get(name, "not measured") for name in names})
    return Table.of("Platforms that are not drawn", rows)
