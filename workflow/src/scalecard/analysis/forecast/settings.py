"""What config.yaml says about forecasts: the network between nodes, and what is asked of the answer."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from scalecard.analysis.forecast.network import Network

PRESETS = (100.0, 200.0, 400.0)  # Gbit/s of a node's network: 100 and 200 Gbit/s Ethernet or EDR and HDR, and NDR


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keys of `forecast:`; a node's network each way, all its adapters together. The values are config.yaml's.

    `devices_per_node` None: as many as were measured on one. `knee` is the efficiency from which on more devices are
    not worth it, `samples` how many are trained on where time and energy are told.
    """

    devices_per_node: int | None = None
    gbit_per_s: float = 200.0
    latency_us: float = 5.0
    knee: float = 0.8
    samples: int = 10_000_000

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Settings":
        """From the block of config.yaml, which the schema has checked; what it leaves out is as above."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})

    @property
    def network(self) -> Network:
        return Network(float(self.gbit_per_s), float(self.latency_us))

    def at(self, gbit_per_s: float) -> "Settings":
        """The same with another network."""
        return replace(self, gbit_per_s=gbit_per_s)
