"""What `ddp` measured of each option of DistributedDataParallel."""

from scalecard.analysis import ratio_text
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Ratio

APART = ("default", "no_sync", "all-reduce alone")  # these take the step apart; they are not options


def options_of(result: Result, model: str, nodes: int | None) -> dict[str, Record]:
    """A step with each option of DDP, by its name, and what takes the step apart."""
    records = result.select("step_time", model=model, nodes=nodes)
    return {str(r.case["option"]): r for r in records if "option" in r.case}


def per_batch(record: Record, default: Record) -> Ratio:
    """An option's time over the default's; accumulating ones take a step every so many batches."""
    return ratio_text.scaled(record.over(default), 1 / float(record.case["steps"] or 1))


def spans(result: Result) -> list[int | None]:
    """The numbers of nodes that steps were measured over."""
    return ratio_text.spans(result.select("step_time"))
