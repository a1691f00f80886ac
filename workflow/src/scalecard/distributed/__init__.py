"""Ranks and nodes: who takes part in a launch, where they meet, and what is recorded if one of them is lost.

Here is how ranks are laid out over nodes: the workflow asks it without torch.
"""

from dataclasses import dataclass

from scalecard import progress
from scalecard.hardware.machine import device_counts
from scalecard.records.axes import Case


@dataclass(frozen=True)
class Layout:
    """`ranks` ranks, the same number on each of `nodes` nodes."""

    ranks: int
    nodes: int = 1

    @property
    def case(self) -> Case:
        """The axes that identify it in a record; `nodes` only if there are several."""
        case: Case = {"devices": self.ranks}
        return {**case, "nodes": self.nodes} if self.nodes > 1 else case

    def __str__(self) -> str:
        return progress.counted(self.ranks, "rank") + (f" on {self.nodes} nodes" if self.nodes > 1 else "")


def layouts(num_devices: int, num_nodes: int) -> list[Layout]:
    """1..N ranks within a node, then 2..M nodes with one rank per node and with one rank per device."""
    within = [Layout(count) for count in device_counts(num_devices)]
    several = [count for count in device_counts(num_nodes) if count > 1]
    return within + [Layout(each * count, count) for count in several for each in sorted({1, num_devices})]
