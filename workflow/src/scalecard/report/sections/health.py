"""Is every part of this machine as it should be?

The map shows what each device copies to each other one (one pair at a time, GB/s); a frame marks an odd one out. In the
strips every device is a point, beside the median of its peers: what is alone at the left, with its number, is slower
than the others. Over several nodes the map is that of the node with the most odd ones, and 3:2 is device 2 of node 3. A
single device is shown beside the hardware's limit. Collectives: bus bandwidth over the devices that
take part, as nccl-tests defines it.
"""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from scalecard.analysis import limits
from scalecard.analysis.limits import Judgement
from scalecard.figures import health
from scalecard.figures.charts import heat_map
from scalecard.records.record import Result
from scalecard.report import health_findings
from scalecard.report import health_findings as parts
from scalecard.report.health_findings import Tile
from scalecard.report.history.trend import nightly
from scalecard.report.sections import Finding

__all__ = ["findings", "judge", "nightly", "plot", "tiles", "topology"]
ROW = 0.3  # inches for each strip
MAP = 230.0  # points: what is left of half the figure for a map's cells


def plot(results: Sequence[Result]) -> Figure:
    """The current platform's links and devices; the collectives of all platforms."""
    here = results[0]
    (node, pairs), nodes, strips = health.device_links(here), health.node_links(here), health.strips(here)
    maps = [name for name, cells in (("devices", pairs), ("nodes", nodes)) if cells]
    above = max(2.4, ROW * len(strips) + 0.9)
    figure = plt.figure(figsize=(8.2, max(above + 2.6, 4.2 * len(maps)) if maps else above))
    places = [[maps[0], "strips"], [maps[-1], "collectives"]] if maps else [["strips"]]
    panels = figure.subplot_mosaic(places, height_ratios=(above, 2.6)[: len(places)])  # type: ignore[arg-type]
    if pairs:
        heat_map(pairs, panels["devices"], width=MAP, what="device")
        on = f" of node {node}" if nodes else ""
        panels["devices"].set_title(f"copies between devices{on} (GB/s)")
    if nodes:
        heat_map(nodes, panels["nodes"], width=MAP, what="node")
        panels["nodes"].set_title("all-reduce between nodes (GB/s)")
    health.draw_strips(strips, panels["strips"], alone=not pairs)
    panels["strips"].set_title("every device")
    if maps:
        health.collectives(results, panels["collectives"])
    return figure


def findings(result: Result) -> list[Finding]:
    """Every fault once, with what to look at, or that there is none; then what the parts reach."""
    return health_findings.findings(result)


def judge(result: Result) -> Iterator[Judgement]:
    """Every fault, then what is normal."""
    yield from health_findings.judgements(result)


def tiles(result: Result) -> list[Tile]:
    """One for every part of the machine."""
    return parts.tiles(result)


def topology(result: Result) -> dict[str, list[list[str]] | list[tuple[str, str]]]:
    """How each pair of GPUs is linked, in nvidia-smi's words, and what these mean; no rows with fewer than two."""
    rows, every = limits.link_matrix(result), range(len(result.environment["gpus"]))
    used = {"NV" if limits.nvlinks(result, a, b) else rows[a][b] for a in every for b in every} if rows else set()
    return {"rows": rows, "legend": [(word, meaning) for word, meaning in limits.LINK_LEGEND.items() if word in used]}
