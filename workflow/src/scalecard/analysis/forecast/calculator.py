"""What the page's calculator computes with: this machine's fitted curves as plain numbers.

It asks for a model of the reader's own: the bytes of its gradients, one device's step, its batch, and the network. The
formula is that of DDP (model.py, communication_overlap.py); report.js has it again, and a test compares the two.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scalecard.analysis.forecast.forecast import COUNTS, Forecast, with_network
from scalecard.analysis.forecast.model import PRESETS, DataParallel
from scalecard.analysis.forecast.monte_carlo import middle
from scalecard.records.strategies import DDP, Collective

SIZES = [4.0**k for k in range(6, 18)]  # bytes of an all-reduce: 4 KiB to 16 GiB
NUM_DRAWS = 41  # of what overlaps; the page takes the median
DIGITS = 5


def data(found: Sequence[Forecast]) -> dict[str, Any]:
    """Times in seconds, by the places of `counts` and `sizes`; empty without a forecast of DDP."""
    of_ddp = [one for one in found if one.model.strategy is DDP]
    if not of_ddp:
        return {}
    first = {one.model.workload.name: one.model for one in reversed(of_ddp) if isinstance(one.model, DataParallel)}
    return {
        "counts": COUNTS,
        "sizes": SIZES,
        "knee": of_ddp[0].settings.knee,
        "networks": _networks(of_ddp[0]),
        "workloads": [_workload(name, model) for name, model in reversed(first.items())],
    }


def _networks(one: Forecast) -> list[dict[str, Any]]:
    """What an all-reduce takes with what was measured between nodes or, if that is nothing, with each usual network."""
    if not one.assumed(COUNTS[-1]):
        return [{"name": "as measured between nodes", "times": _times(one)}]
    within = replace(one.model, parts=replace(one.model.parts, per_node=COUNTS[-1]))
    rates = sorted({*PRESETS, float(one.settings.gbit_per_s)})
    here = one.model.parts.per_node
    return [
        *(
            {
                "name": f"{rate:g} Gbit/s between nodes of {here} device{'s' * (here > 1)}",
                "times": _times(with_network(one, rate)),
                "chosen": rate == one.settings.gbit_per_s,
            }
            for rate in rates
        ),
        {"name": "as within this node, however many devices", "times": _times(Forecast(within, one.settings))},
    ]


def _times(one: Forecast) -> list[list[float]]:
    """Of every count, at every size."""
    model = one.model
    assert isinstance(model, DataParallel)
    reduce = model.exchanges[Collective.ALL_REDUCE]
    return [[_short(middle(reduce.seconds(size, model.layout(count)))) for size in SIZES] for count in COUNTS]


def _workload(name: str, model: DataParallel) -> dict[str, Any]:
    size, calls = model.parts.volume
    local, overlap = model.parts.local, model.overlap
    chosen = slice(0, NUM_DRAWS)
    parts = (overlap.slowed, overlap.tail, overlap.room, overlap.extra, overlap.fixed)
    return {
        "name": name,
        "bytes": size,
        "calls": calls,
        "seconds": _short(middle(local.at(model.parts.batch))),
        "batch": model.parts.batch,
        "local": [[float(b), _short(middle(local.at(b)))] for b in local.sizes],
        "company": [_short(middle(model.parts.in_company(count))) for count in COUNTS],
        "slowest": [_short(middle(model.parts.ranks[model.scaling].slowest(count))) for count in COUNTS],
        "overlap": [[_short(value) for value in draw] for draw in zip(*(part[chosen] for part in parts), strict=True)],
    }


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
