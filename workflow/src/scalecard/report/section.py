"""What the report says about one result: all of it, computed once, or its headline if its platform is not drawn."""

import ast
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalecard.analysis import by_key, formatting, limits, platforms, provenance, published_figures
from scalecard.analysis.limits import Judgement
from scalecard.analysis.published_figures import Match, Ours
from scalecard.records.files import as_json
from scalecard.records.record import Result
from scalecard.report import beside_book, downloads, record_table, sections
from scalecard.report.record_table import Proof, Row, proofs
from scalecard.report.sections import Finding
from scalecard.report.table import Table

SYNTHETIC = "synthetic"  # images, by their name in a case
EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@dataclass(frozen=True, kw_only=True)
class Section:
    """One experiment on one platform. `ours` holds our values of published metrics; the first finding leads."""

    result: Result
    findings: list[Finding]
    judgements: list[Judgement]
    ours: list[Ours]
    matches: list[Match]
    rows: dict[str, Row]
    absent: list[dict[str, Any]]
    proofs: list[Proof]
    state: list[tuple[str, str]]
    tiles: list[Any]
    topology: dict[str, Any]
    overview: Any

    @classmethod
    def of(cls, result: Result) -> "Section":
        """Compute everything that the report says about a result."""
        module = sections.load(result.experiment)
        ours = list(module.published(result)) if hasattr(module, "published") else []
        matches = published_figures.matches(result.experiment, ours)
        rates = module.judge(result) if hasattr(module, "judge") and not result.emulated else []
        return cls(
            result=result,
            findings=module.findings(result),
            judgements=[*rates, *limits.beside_published(result, matches)],
            ours=ours,
            matches=matches,
            rows=record_table.rows(result),
            absent=record_table.absent(result),
            proofs=proofs(result),
            state=record_table.telemetry_overview(result),
            tiles=module.tiles(result) if hasattr(module, "tiles") else [],
            topology=module.topology(result) if hasattr(module, "topology") else {},
            overview=module.overview(result) if hasattr(module, "overview") else None,
        )

    @property
    def name(self) -> str:
        return self.result.experiment

    @property
    def platform(self) -> str:
        return self.result.platform

    @property
    def headline(self) -> str:
        return sections.headline(self.findings)

    @property
    def published(self) -> dict[str, Any]:
        """Published figures next to ours; accuracies are left out if the images were synthetic."""
        entries = published_figures.published(self.name)
        shown = [entry for entry in entries if not (self._is_synthetic and entry.metric == "test_accuracy")]
        return {
            "entries": list(beside_book.rows(shown, self.matches)),
            "hidden_accuracies": len(entries) - len(shown),
            "same_workload": bool(self.matches),
        }

    @property
    def _is_synthetic(self) -> bool:
        return any(record.case.get("data") == SYNTHETIC for record in self.result.records)

    @property
    def beside_the_book(self) -> Table:
        """Published values of each metric that we measured alike, and ours."""
        device, hidden = platforms.device_name(self.result), bool(self.published["hidden_accuracies"])
        return beside_book.table(self.name, self.matches, device, hidden=hidden)

    @property
    def scale_notes(self) -> list[str]:
        """What had no time, and what means little at the scale at which this ran."""
        notes = [text] if (text := provenance.left_out([self.result])) else []
        images = self.result.spec.get("train_images")
        if images:
            notes.append(f"Only {images} images were trained on here: accuracies and epochs are of this small set.")
        elif published_figures.published(self.name) and not self.matches and not any(one.gpu for one in self.ours):
            notes.append("The sizes are not those of the publications, so their numbers are not shown beside these.")
        return notes

    @property
    def limit(self) -> dict[str, Any]:
        device = platforms.device_name(self.result)
        spec = published_figures.gpu_spec(device)
        return {"platform": self.platform, "device": device, "spec": asdict(spec) if spec else None}

    @property
    def raw(self) -> dict[str, str]:
        """The result's file name, and a data URL with its compressed content, which report.js unpacks."""
        return {
            "file": f"{self.platform}-{self.name}.json.gz",
            "href": downloads.packed(as_json(self.result).encode()),
        }


@dataclass(frozen=True, kw_only=True)
class Brief:
    """A result, of which the most important number alone is shown."""

    result: Result
    headline: str

    @classmethod
    def of(cls, result: Result) -> "Brief":
        findings = sections.load(result.experiment).findings(result)
        return cls(result=result, headline=sections.headline(findings))


def others_table(known: Sequence[Brief], experiments: Sequence[str]) -> Table:
    """The rows, those measured last first; none if every platform is drawn."""
    names = dict.fromkeys([*experiments, *(brief.result.experiment for brief in known)])
    newest_first = sorted(known, key=lambda brief: brief.result.finished, reverse=True)
    rows = []
    for platform, own in by_key((platforms.platform_label(brief.result), brief) for brief in newest_first).items():
        last, headlines = own[0].result, {brief.result.experiment: brief.headline for brief in own}
        row = {
            "Platform": platform,
            "Device": platforms.device_name(last),
            "Measured": formatting.minute(last.finished),
        }
        rows.append(row | {formatting.spaced(name): headlines.get(name, "not measured") for name in names})
    return Table.of("Platforms that are not drawn", rows)


def method(name: str) -> list[str]:
    """The paragraphs of the experiment's docstring, read as source because importing it would need torch."""
    tree = ast.parse((EXPERIMENTS / f"{name}.py").read_bytes())
    return [" ".join(each.split()) for each in (ast.get_docstring(tree) or "").split("\n\n")[1:]]
