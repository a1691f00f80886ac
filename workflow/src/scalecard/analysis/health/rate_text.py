"""Words for a rate: whose it is and what was measured, for a verdict, a tile and a strip."""

from dataclasses import replace

from scalecard.analysis import formatting
from scalecard.analysis.health.measured_rates import Rate
from scalecard.analysis.health.verdict import Kind, Part
from scalecard.records.record import Scalar

OF_DEVICES = (Part.COMPUTE, Part.MEMORY, Part.HOST_LINKS)  # parts that every device has
MODES: dict[Scalar, str] = {False: "alone", True: "all at once"}


def who(rate: Rate) -> str:
    """'GPU 3', or 'GPU 3 to 1' in the direction of the copy; '' for what no device is named for."""
    if rate.part is Part.GPU_LINKS:
        source, target = (rate.record.integer(end) for end in ("source", "target"))
        return f"{replace(rate.place[0], device=source)} to {target}"
    return str(rate.place[0]) if rate.part in OF_DEVICES else ""


def measured(rate: Rate) -> str:
    """'memory copy, alone': of whomever, and with which others at the same time."""
    case = rate.record.case
    mode = "under load" if case["part"] == "load" else MODES.get(case.get("at_once"), "")
    return ", ".join(filter(None, (_subject(rate), mode)))


def in_tile(rate: Rate) -> str:
    """'memory copy, one at a time': of all devices, pairs or nodes together."""
    if rate.part is Part.GPU_LINKS:
        return "copies, one pair at a time"
    if rate.kind is Kind.NODE_PAIR:
        return "all-reduce between two nodes"
    return _subject(rate) + (", one at a time" if rate.alone else "")


def in_strip(rate: Rate) -> str:
    """'memory copy' or 'bfloat16 under load': alone and all at once share a strip."""
    return f"{rate.record.case['dtype']} under load" if rate.record.case["part"] == "load" else _subject(rate)


def _subject(rate: Rate) -> str:
    """What was measured, without who and how."""
    case, nodes = rate.record.case, [place.node for place in rate.place]
    size = formatting.on_axis("bytes", case.get("bytes"))
    match case["part"]:
        case "compute" | "load":
            return f"{case['dtype']} products"
        case "memory":
            return f"memory {case['access']}"
        case "host link":
            return f"{case['direction']}, {case['memory']}" + (f", {size}" if rate.kind is Kind.LATENCY else "")
        case "device link":
            return size
        case "node":
            return f"all-reduce within node {nodes[0]}"
        case "node pair":
            return f"all-reduce between nodes {nodes[0]} and {nodes[1]}"
        case "collective":
            over = formatting.over_nodes(rate.record.integer("nodes", 0))
            name = str(case["collective"]).replace("_", "-")
            return f"{name} on {case['devices']} devices{over}, {size}"
    of_numa = "" if case.get("numa_node") is None else f" of NUMA node {case['numa_node']}"
    of_node = "" if rate.node is None else f" of node {rate.node}"
    return ("reading data_dir" if rate.kind is Kind.STORAGE else f"copying memory{of_numa}") + of_node
