"""The records of steps, and what was measured beside them."""

from scalecard.records.record import Case, Record, Result
from scalecard.records.strategies import SINGLE


def place(step: Record) -> Case:
    """The axes of a step, for what was measured beside it; of one node, nothing that was measured on several."""
    return {"nodes": None, **step.case}


def single(result: Result, workload: str) -> Record | None:
    """One device alone."""
    return result.find("step_time", workload=workload, strategy=SINGLE.name)


def operations_each(alone: Record | None) -> float:
    """The operations of one device's plain step per sample or token; 0 if they were not counted."""
    counted = alone and next((count.counted for count in alone.work if count.name == "FLOPs"), None)
    return counted / float(alone.case["units"] or 0) if alone and counted else 0.0
