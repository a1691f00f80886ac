"""The table of the platforms that are not drawn, a row for each."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalecard.analysis import formatting, platforms
from scalecard.records.record import Result
from scalecard.report import sections
from scalecard.report.table import Table


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
        """The headline of the section's findings."""
        return cls(
            platform=platforms.platform_label(result),
            experiment=result.experiment,
            device=platforms.device_name(result),
            finished=result.finished,
            headline=sections.headline(sections.load(result.experiment).findings(result)),
        )


def others_table(known: Sequence[Brief], experiments: Sequence[str]) -> Table:
    """The rows, those measured last first; none if every platform is drawn."""
    names = list(dict.fromkeys([*experiments, *(brief.experiment for brief in known)]))
    by_platform: dict[str, list[Brief]] = {}
    for brief in sorted(known, key=lambda brief: brief.finished, reverse=True):
        by_platform.setdefault(brief.platform, []).append(brief)
    rows = []
    for platform, own in by_platform.items():
        row = {"Platform": platform, "Device": own[0].device, "Measured": formatting.minute(own[0].finished)}
        headlines = {brief.experiment: brief.headline for brief in own}
        rows.append(row | {formatting.spaced(name): headlines.get(name, "not measured") for name in names})
    return Table.of("Platforms that are not drawn", rows)
