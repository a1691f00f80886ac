"""The health of a machine for a terminal, a script, or a CI: `scalecard health`.

Verdicts come from analysis/health; here they are counted by part, and a gate decides which of them fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scalecard.analysis import formatting
from scalecard.analysis.health.alerts import alerts, verdicts
from scalecard.analysis.health.verdict import EXPERIMENT, WORDS, Verdict
from scalecard.cli.output import JUnitCase, Output
from scalecard.hardware.machine import from_facts
from scalecard.progress import counted
from scalecard.records.record import Result

# Which alerts each level of --fail-on means: a level includes those before it.
ERRORS = {"errors", "not measured"}
LOW = ERRORS | {"low", "slowed down"}
LEVELS = {"errors": ERRORS, "low": LOW, "odd": LOW | {"odd one out"}}
NOT_JUDGED = "not judged"


@dataclass(frozen=True, kw_only=True)
class PartHealth:
    """One part of the machine: the verdicts on its numbers that were judged, and its alerts, the worst first."""

    name: str
    verdicts: list[str]
    alerts: list[Verdict]

    @property
    def normal(self) -> int:
        return self.verdicts.count("normal")

    @property
    def verdict(self) -> str:
        """That of its worst alert, else of its worst number: an alert of another part may be the cause of that."""
        if self.alerts:
            return self.alerts[0].verdict
        return min(self.verdicts, key=WORDS.index, default=NOT_JUDGED)

    @property
    def in_words(self) -> str:
        """'2 of 3 normal', and why there is no alert for the third."""
        if not self.verdicts:
            return "nothing known to compare with"
        elsewhere = self.normal < len(self.verdicts) and not self.alerts
        return f"{self.normal} of {len(self.verdicts)} normal" + (", by an alert of another part" if elsewhere else "")


@dataclass(frozen=True, kw_only=True)
class Health:
    """The verdicts on one machine. Without `fail_on` nothing fails."""

    result: Result
    verdicts: Sequence[Verdict]
    alerts: Sequence[Verdict]
    fail_on: str | None

    @property
    def parts(self) -> list[PartHealth]:
        """Every part that was measured, in the order of the verdicts."""
        return [
            PartHealth(
                name=name,
                verdicts=[v.verdict for v in self.verdicts if v.part == name and v.verdict != NOT_JUDGED],
                alerts=[alert for alert in self.alerts if alert.part == name],
            )
            for name in dict.fromkeys(v.part for v in [*self.verdicts, *self.alerts])
        ]

    @property
    def failing(self) -> list[Verdict]:
        """The alerts that `fail_on` names."""
        return [alert for alert in self.alerts if self.fail_on and fails(alert, self.fail_on)]


def fails(alert: Verdict, level: str) -> bool:
    """True if a level of --fail-on includes this alert."""
    return alert.verdict in LEVELS[level] or (alert.low and "low" in LEVELS[level])


def check(results: Sequence[Result], name: str, *, fail_on: str | None, max_age: float | None = None) -> Health:
    """The verdicts on the health result among these. ValueError if there is none, or it is older than `max_age` hours.

    `name` is how the results were asked for.
    """
    if max_age is not None and not max_age > 0:
        raise ValueError(f"--max-age {max_age:g}: must be above 0, in hours, e.g. 24")
    result = next((r for r in results if r.experiment == EXPERIMENT), None)
    if result is None:
        has = ", ".join(sorted(r.experiment for r in results)) or "nothing"
        raise ValueError(f"'{name}': has no result of {EXPERIMENT} (it has: {has}); measure it: snakemake {EXPERIMENT}")
    hours = (datetime.now(UTC) - datetime.fromisoformat(result.finished)).total_seconds() / 3600
    if max_age is not None and hours > max_age:
        raise ValueError(
            f"'{name}': {EXPERIMENT} was measured {hours:.1f} hours ago, more than --max-age {max_age:g};"
            f" measure it again: snakemake {EXPERIMENT} --forcerun {EXPERIMENT}"
        )
    return Health(result=result, verdicts=verdicts(result), alerts=alerts(result), fail_on=fail_on)


def output(health: Health) -> Output:
    """A test case for each part, so that names stay the same from night to night.

    A part fails by the alerts that --fail-on names, or by all if it was not given.
    """
    level, result = health.fail_on or "odd", health.result
    return Output(
        lines=_lines(health),
        fields={
            "platform": result.platform,
            "measured": result.finished,
            "emulated": result.emulated,
            "fail_on": health.fail_on,
            "failed": bool(health.failing),
            "parts": [
                {"part": p.name, "verdict": p.verdict, "judged": len(p.verdicts), "normal": p.normal}
                for p in health.parts
            ],
            "alerts": [{**_fields(alert), "fails": alert in health.failing} for alert in health.alerts],
            "verdicts": [_fields(verdict) for verdict in health.verdicts],
        },
        suite=f"health of {result.platform}",
        cases=[_case(part, [alert for alert in part.alerts if fails(alert, level)]) for part in health.parts],
        measured=result.finished,
    )


def _lines(health: Health) -> list[str]:
    machine, finished = from_facts(health.result.environment["machine"]), formatting.minute(health.result.finished)
    stands = ", emulated on CPU workers" if health.result.emulated else ""
    lines = [f"{health.result.platform} ({machine.describe()}{stands}), measured {finished} UTC"]
    width = max((len(part.name) for part in health.parts), default=0)
    lines += [f"  {part.name:{width}}  {part.verdict:11}  {part.in_words}" for part in health.parts]
    for alert in health.alerts:
        lines += [f"{_said(alert)}.", *([f"  {alert.advice}"] if alert.advice else [])]
    fail = f", {len(health.failing)} of them fail --fail-on {health.fail_on}" if health.fail_on else ""
    return [*lines, counted(len(health.alerts), "alert") + fail]


def _said(alert: Verdict) -> str:
    return f"{alert.verdict}: {alert.what}, {alert.value} ({alert.normal})"


def _fields(verdict: Verdict) -> dict[str, Any]:
    return {name: getattr(verdict, name) for name in ("part", "what", "value", "normal", "verdict", "advice")}


def _case(part: PartHealth, failing: Sequence[Verdict]) -> JUnitCase:
    more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
    return JUnitCase(
        group=EXPERIMENT,
        name=part.name,
        failure=f"{_said(failing[0])}{more}" if failing else "",
        skipped="" if part.verdicts or part.alerts else part.in_words,
        details=[line for alert in part.alerts for line in (_said(alert), alert.advice) if line] or [part.in_words],
    )
