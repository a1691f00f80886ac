"""The answers to questions that several experiments answer together, on one platform."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scalecard.analysis import platforms
from scalecard.analysis.load_results import LeftOut, attempt
from scalecard.analysis.platforms import PlatformResults, Settings
from scalecard.records.record import Result
from scalecard.report import answers, plugin_loader, sections
from scalecard.report.sections import Finding
from scalecard.report.table import Table


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The question, how its figure is read, and what is found."""

    name: str
    title: str
    how_to_read: str
    findings: list[Finding]
    tables: list[Table]
    calculator: dict[str, Any]

    @classmethod
    def of(cls, name: str, measured: PlatformResults) -> "Answer":
        """What the module of this name computes."""
        module = answers.load(name)
        return cls(
            name=name,
            title=plugin_loader.title(module),
            how_to_read=plugin_loader.how_to_read(module),
            findings=module.findings(measured),
            tables=[table.filled() for table in module.tables(measured) if table.rows],
            calculator=module.calculator(measured) if hasattr(module, "calculator") else {},
        )

    @property
    def by_topic(self) -> list[Finding]:
        """The findings, those to act on first."""
        return sections.by_topic(self.findings)


def every(results: Sequence[Result], settings: Settings, left_out: list[LeftOut]) -> list[Answer]:
    """The answers that the results of one platform allow; all of them rest on the strategies.

    One that cannot be computed is added to what is left out.
    """
    measured = platforms.current(results, settings)
    if measured.of("strategies") is None:
        return []
    tried = [attempt(f"answer {name}", partial(Answer.of, name, measured), left_out) for name in answers.names()]
    return [answer for answer in tried if answer and (answer.findings or answer.tables)]
