"""Many platforms on one static page, as a team or the public collects them: a row for each machine.

Whether it is healthy, the rate that stands for each of its parts, and how each of its models scales are said as on the
first screen of its own report, to which they link if that lies beside its folder. Emulated devices have a table of
their own: their numbers are a CPU's.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from scalecard.analysis import platforms
from scalecard.analysis.health.verdict import Part
from scalecard.analysis.platforms import LeftOut, by_reason
from scalecard.records.atomic import write_atomically
from scalecard.records.files import InvalidResult, is_result_file
from scalecard.records.record import Result
from scalecard.report import first_screen, pages
from scalecard.report.first_screen import FirstScreen
from scalecard.report.section import Section
from scalecard.report.table import EMPTY, Cell, Table

NEEDED = ("health", "strategies", "tuning")  # the experiments that the first screen speaks of
REPORT = "report.html"


@dataclass(frozen=True)
class Exhibit:
    """A platform, what is said of it at once, and the link to its report from the page; '' if there is none."""

    result: Result
    screen: FirstScreen
    report: str

    @property
    def row(self) -> dict[str, str | Cell]:
        """Its cells by column, each with the number that it is sorted by."""
        machine = self.result.environment["machine"]
        nodes, devices = max(1, len(self.result.environment["nodes"])), machine["num_devices"]
        rates = {tile.part: Cell(tile.number, tile.value, link=self._link("health")) for tile in self.screen.tiles}
        scaling = "; ".join(f"{one.workload}: {one.same_batch}" for one in self.screen.scaling)
        tuned = "; ".join(f"{workload}: {brought}" for workload, brought in self.screen.tuned)
        return {
            "Machine": Cell(self.screen.nickname, link=self._link("summary")),
            "Devices": Cell(str(devices * nodes), devices * nodes),
            "Nodes": Cell(str(nodes), nodes),
            "Driver": machine["driver"] or "",
            "PyTorch": str(self.result.environment["torch"]),
            "Measured": self.result.finished[:10],
            "Health": Cell(self.screen.verdict, link=self._link("health")),
            **{f"{part[:1].upper()}{part[1:]}": rates.get(part, EMPTY) for part in Part},
            "Scaling, same total batch": Cell(scaling, link=self._link("strategies")),
            "One device, tuned": Cell(tuned, link=self._link("tuning")),
            "Platform": self.result.platform,
        }

    def _link(self, section: str) -> str:
        return f"{self.report}#{section}" if self.report else ""


def write(folders: Sequence[Path], output: Path) -> list[LeftOut]:
    """Write the page of these platforms' folders; return what is left out: files, or platforms without any that count.

    InvalidResult if none is left.
    """
    left_out = list[LeftOut]()
    found = [exhibit for folder in folders for exhibit in _exhibits(folder, output, left_out)]
    if not found:
        reasons = "; ".join(map(str, left_out))
        raise InvalidResult(
            "gallery", f"no platform can be shown: {reasons or 'no folder has results of ' + _needed()}"
        )
    tables = [
        Table.of(label, [one.row for one in found if one.screen.trial == trial]).filled()
        for label, trial in (("Machines", False), ("Trials on CPUs: devices are emulated", True))
        if any(one.screen.trial == trial for one in found)
    ]
    write_atomically(output, pages.render("gallery.html.j2", tables=tables, left_out=by_reason(left_out)))
    return left_out


def _exhibits(folder: Path, output: Path, left_out: list[LeftOut]) -> Iterable[Exhibit]:
    """The platform of a folder, unless it cannot be shown."""
    paths = [path for name in NEEDED if is_result_file(path := folder / f"{name}.json") and path.exists()]
    if not paths:
        left_out.append(LeftOut(folder.name, f"it has no result of {_needed()}."))
        return
    try:
        results = platforms.gather(paths).results
    except InvalidResult as error:
        left_out.append(LeftOut(folder.name, str(error)))
        return
    sections, unfit = platforms.each_fit(results, Section.of, here="")
    left_out += unfit
    if sections:
        report = folder.parent / REPORT
        link = Path(os.path.relpath(report, output.parent)).as_posix() if _is_of(report, results[0].platform) else ""
        yield Exhibit(results[0], first_screen.of(sections, left_out), link)


def _is_of(report: Path, platform: str) -> bool:
    """Whether the report's current platform is this one, as its head says."""
    return report.exists() and f'<meta name="platform" content="{escape(platform)}">' in report.read_text("utf-8")


def _needed() -> str:
    return f"{', '.join(NEEDED[:-1])} or {NEEDED[-1]}"
