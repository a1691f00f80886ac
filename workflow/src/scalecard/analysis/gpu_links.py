"""How the GPUs of a machine are linked to one another, from what NVML said of every pair."""

from collections.abc import Sequence

from scalecard.records.record import Result

# NVML's common ancestor of two GPUs, in nvidia-smi's words.
LEVELS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
LEGEND = {
    "NV": "NVLinks, and how many",
    "PSB": "one board",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's PCIe host bridge",
    "NODE": "several host bridges of one NUMA node",
    "SYS": "the link between two CPUs",
}


def nvlinks(result: Result, a: int, b: int) -> int | None:
    """How many NVLinks two GPUs have in both directions; None if the driver did not say."""
    pairs: list[list[int | None]] = result.environment["nvlink_pairs"]
    if max(a, b) >= len(pairs):
        return None
    there, back = pairs[a][b], pairs[b][a]
    return None if there is None or back is None else min(there, back)


def of_group(result: Result, gpu: int, used: Sequence[int]) -> int:
    """How many NVLinks lead from a GPU to the others that are used; all of them, if they lead to switches."""
    counts = [nvlinks(result, gpu, other) or 0 for other in used if other != gpu]
    return max(counts, default=0) if on_switches(result, gpu) else sum(counts)


def on_switches(result: Result, gpu: int) -> bool:
    """Whether a GPU's NVLinks lead to switches: then more lead to its peers, counted one by one, than it has."""
    gpus = result.environment["gpus"]
    counts = [nvlinks(result, gpu, other) or 0 for other in range(len(gpus)) if other != gpu]
    own = gpus[gpu]["nvlinks"] or 0
    return sum(counts) > own


def has_ring(result: Result, used: Sequence[int]) -> bool:
    """Whether NVLinks lead around all of these GPUs, each visited once."""
    neighbours = [sum(bool(nvlinks(result, a, b)) for b in used if b != a) for a in used]
    return min(neighbours) >= min(2, len(used) - 1) and _around(result, [used[0]], set(used[1:]))


def _around(result: Result, path: list[int], left: set[int]) -> bool:
    if not left:
        return bool(nvlinks(result, path[-1], path[0]))
    return any(nvlinks(result, path[-1], other) and _around(result, [*path, other], left - {other}) for other in left)


def label(result: Result, a: int, b: int) -> str:
    """As in nvidia-smi's matrix: 'NV18', 'PIX' ...; 'X' for the GPU itself, '?' if it is not known."""
    if a == b:
        return "X"
    found = nvlinks(result, a, b)
    level = result.environment["topology"][a][b]
    return f"NV{found}" if found else LEVELS.get(level, "?")


def matrix(result: Result) -> list[list[str]]:
    """The labels of every pair; empty with fewer than two GPUs."""
    every = range(len(result.environment["gpus"]))
    return [[label(result, a, b) for b in every] for a in every] if len(every) > 1 else []


def kind(result: Result, a: int, b: int) -> str:
    """What is alike for pairs that are linked alike: through switches 'NV', however many links are up."""
    if max(a, b) >= len(result.environment["gpus"]):
        return ""
    switched = a != b and nvlinks(result, a, b) and on_switches(result, a) and on_switches(result, b)
    return "NV" if switched else label(result, a, b)
