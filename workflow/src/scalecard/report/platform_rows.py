"""One row per platform: what the report says of those that are not drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalecard.analysis import formatting, platforms
from scalecard.records.record import Result
from scalecard.report import sections


@dataclass(frozen=True, kw_only=True)
class Brief:
    """One experiment on one platform: its most important number."""

    platform: str
    experiment: str
    device: str
    finished: str
    headline: str

    @classmethod
    def of(cls, result: Result) -> "Brief":
        """What the section's findings say first."""
        return cls(
            platform=platforms.platform_label(result),
            experiment=result.experiment,
            device=platforms.device_name(result),
            finished=result.finished,
            headline=sections.headline(sections.load(result.experiment).findings(result)),
        )


def others_table(known: Sequence[Brief], experiments: Sequence[str]) -> dict[str, Any]:
    """The rows, those measured last first, and their head; no rows if every platform is drawn."""
    names = list(dict.fromkeys([*experiments, *(brief.experiment for brief in known)]))
    by_platform: dict[str, list[Brief]] = {}
    for brief in sorted(known, key=lambda brief: brief.finished, reverse=True):
        by_platform.setdefault(brief.platform, []).append(brief)
    return {
        "head": ["Platform", "Device", "Measured", *map(formatting.spaced, names)],
        "rows": [_row(platform, own, names) for platform, own in by_platform.items()],
    }


def _row(platform: str, own: Sequence[Brief], names: Sequence[str]) -> list[str]:
    headlines = {brief.experiment: brief.headline for brief in own}
    measured = formatting.minute(own[0].finished)
    return [platform, own[0].device, measured, *(headlines.get(name, "not measured") for name in names)]
