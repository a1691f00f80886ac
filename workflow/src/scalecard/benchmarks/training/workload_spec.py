"""What the Specs of all experiments have in common that train the workloads of config.yaml."""

from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Len

from scalecard.benchmarks.training.validate import check
from scalecard.workloads.workload import Load, chosen

Workloads = Annotated[Mapping[str, Mapping[str, Any]], Len(min_length=1)]


class OfWorkloads:
    """For a Spec with `workloads` and `seed`. NotAWorkload, as soon as it is made, if one of them is none."""

    workloads: Workloads
    seed: int

    def __post_init__(self) -> None:
        """A file of the user's is looked at before anything is measured; ours are tested."""
        for load in self.loads:
            check(load)

    @property
    def loads(self) -> list[Load]:
        """The workloads as they are timed on one device."""
        return chosen(self.workloads, self.seed)
