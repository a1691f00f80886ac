"""What the axes of cases are called and counted in; result.schema.json lists and describes them all."""

from scalecard.records.record import Case

# The switches that tuning tries. A case has an axis for each that is on: its place among them, from 1.
RUNGS = ("tf32", "bf16", "channels_last", "fused", "benchmark", "compile", "graphs")
BASELINE = "float32"  # without any

# Axes, and settings of config.yaml, whose values are sizes in bytes.
IN_BYTES = frozenset({"bytes", "link_bytes", "collective_bytes", "memory_bytes"})
# What stands before a value where that is not the axis' name: nothing where the value says enough.
LABELS = {"bytes": "", **{rung: f"{rung} as rung" for rung in RUNGS}}


def axis_label(axis: str) -> str:
    """What stands before a value on this axis: 'batch size', or nothing."""
    return LABELS.get(axis, axis.replace("_", " "))


def rungs_of(case: Case) -> tuple[str, ...]:
    """The rungs that are on, in the order in which they were added."""
    places = {rung: case[rung] for rung in RUNGS if rung in case}
    return tuple(sorted(places, key=lambda rung: places[rung] or 0))


def parts_of(case: Case) -> list[str]:
    """What makes it another step than the plain one, the last addition last: rungs, 'accumulate 4', 'batch x2'."""
    count, factor = case.get("accumulate"), case.get("batch_factor")
    return [*rungs_of(case), *[f"accumulate {count}"] * bool(count), *[f"batch x{factor}"] * bool(factor)]


def combination(case: Case) -> str:
    """'bf16 + fused', or 'float32'."""
    return " + ".join(parts_of(case)) or BASELINE
