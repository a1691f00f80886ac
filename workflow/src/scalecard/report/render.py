"""Renders results as one HTML file that works offline.

Every word of the report comes from records, from the docstrings of sections and experiments, or from the reference
files. What is said about one result is computed in section.py; this module arranges it for the templates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_plus

from scalecard.analysis import formatting, platforms, provenance, published_figures
from scalecard.analysis.load_results import LeftOut, attempt, by_reason, each_fit, file_of, gather
from scalecard.analysis.platforms import NO_SETTINGS, PlatformResults, Settings, selection
from scalecard.figures import style, svg
from scalecard.hardware.machine import from_facts
from scalecard.records.atomic import write_atomically
from scalecard.records.files import InvalidResult, refuse_mixed_machines
from scalecard.records.record import Result
from scalecard.report import (
    answers,
    changes_section,
    first_screen,
    pages,
    plugin_loader,
    provenance_table,
    record_table,
    section,
    sections,
    toc,
)
from scalecard.report.history import trend_section
from scalecard.report.history.trend import of_indices
from scalecard.report.pages import MISSING, Take
from scalecard.report.provenance_table import Brief, others_table
from scalecard.report.section import Section
from scalecard.report.sections import Finding
from scalecard.report.table import Table

NUM_LEADING = 8
NOT_WRITTEN = "it could not be written; see results/logs/exports.log"


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


def every_answer(results: Sequence[Result], settings: Settings, left_out: list[LeftOut]) -> list[Answer]:
    """The answers that the results of one platform allow; all of them rest on the strategies.

    One that cannot be computed is added to what is left out.
    """
    measured = platforms.current(results, settings)
    if measured.of("strategies") is None:
        return []
    tried = [attempt(f"answer {name}", partial(Answer.of, name, measured), left_out) for name in answers.names()]
    return [answer for answer in tried if answer and (answer.findings or answer.tables)]


def write(
    paths: Sequence[Path],
    figures: Path,
    output: Path,
    show: Sequence[str] | None = None,
    history: Sequence[Path] = (),
    exports: Sequence[Path] = (),
    settings: Settings = NO_SETTINGS,
) -> list[LeftOut]:
    """Write the report of these result files, the current platform's first; return what is left out.

    Those of the `exports` are linked that could be written.
    """
    found = gather(paths)
    traces = sorted(paths[0].parent.glob("traces/*/*.json.gz"))
    linked = [path.relative_to(output.parent) for path in traces if path.is_relative_to(output.parent)]
    there = [path for path in exports if path.read_bytes() != MISSING]
    missing = [LeftOut(path.name, NOT_WRITTEN, ours=True) for path in exports if path not in there]
    left_out = [*found.left_out, *missing]
    options: dict[str, Any] = {
        "left_out": left_out,
        "history": history,
        "traces": linked,
        "exports": [pages.link(path, output) for path in there],
        "taken": pages.takes(there, output),
    }
    write_atomically(output, render(found.results, figures, show=show, settings=settings, **options))
    return left_out


def render(
    results: Sequence[Result],
    figures: Path,
    *,
    show: Sequence[str] | None = None,
    left_out: list[LeftOut] | None = None,
    history: Sequence[Path] = (),
    traces: Sequence[Path] = (),
    exports: Sequence[str] = (),
    taken: Sequence[Take] = (),
    settings: Settings = NO_SETTINGS,
) -> str:
    """The report over all experiments and platforms; the first result's platform is the current one.

    `figures` is the folder of the figures' panels, `show` names the platforms to draw, and to `left_out` is added what
    cannot be said or was not drawn. `history` are the indices of kept nights, `traces` and `exports` are linked, and
    `taken` is on the first screen. `settings` are those of answers. ValueError if results of one platform are of
    different hardware, InvalidResult if nothing can be said of the current one.
    """
    refuse_mixed_machines(results, "results")
    left_out = [] if left_out is None else left_out
    ours = [result for result in results if result.experiment in sections.names()]
    wanted = selection(ours, show)
    known, brief, unfit = _read(ours, wanted)
    left_out += unfit
    platforms = [platform for platform in wanted if any(s.platform == platform for s in known)]
    if platforms[:1] != wanted[:1]:
        raise InvalidResult(f"nothing can be said of {wanted[0]}", f"{unfit[0].what}: {unfit[0].reason}")
    by_name = {name: _of(known, name, platforms) for name in toc.in_order({s.name for s in known})}
    values = {
        **_said_of_all(known, platforms, figures, settings, left_out),
        "unknown": sorted(set(show or ()) - {r.platform for r in ours}),
        "platforms": platforms,
        "matrix": [_matrix_row(name, platforms, own) for name, own in by_name.items()],
        "others": others_table(brief, list(by_name)),
        "trend": _trend(history, figures, platforms[0]) if history else None,
        "sections": [_page(name, own, figures, platforms[0], traces, left_out) for name, own in by_name.items()],
    }
    return pages.render("report.html.j2", left_out=by_reason(left_out), exports=exports, takes=taken, **values)


def _said_of_all(
    known: Sequence[Section], platforms: Sequence[str], figures: Path, settings: Settings, left_out: list[LeftOut]
) -> dict[str, Any]:
    """What rests on several experiments: the findings to begin with, the answers, and what differs from others."""
    results, mine = [s.result for s in known], {s.name: s for s in known if s.platform == platforms[0]}
    current = [mine[name] for name in toc.in_order(mine)]  # so that health leads
    replies = every_answer([s.result for s in current], settings, left_out)
    advised = [] if results[0].emulated else replies
    by_platform = {p: [s for s in known if s.platform == p] for p in platforms[1:]}
    changes = [
        attempt(f"changes from {p}", partial(changes_section.part, s, current), left_out)
        for p, s in by_platform.items()
    ]
    judged = {s.name: not any(each.is_trouble for each in s.judgements) for s in current if s.judgements}
    return {
        "contents": toc.grouped([*(answer.name for answer in replies), *{s.name for s in known}], judged),
        "first": first_screen.of(current, left_out),
        "masthead": _masthead([s.result for s in current]),
        "health": [judgement for s in current for judgement in s.judgements],
        "leading": leading([*current, *advised]),
        "answers": [_answer(answer, figures, left_out) for answer in replies],
        "changes": [part for part in changes if part],
        "provenance": [provenance_table.facts(platform, results) for platform in platforms],
    }


def _read(results: Sequence[Result], platforms: Sequence[str]) -> tuple[list[Section], list[Brief], list[LeftOut]]:
    """These platforms' sections, the others in brief, and what cannot be said."""
    chosen = [result for result in results if result.platform in platforms]
    others = [result for result in results if result.platform not in platforms]
    known, unfit = each_fit(chosen, Section.of, here=platforms[0])
    brief, unfit_too = each_fit(others, Brief.of, here=platforms[0])
    return known, brief, [*unfit, *unfit_too]


def _of(known: Sequence[Section], name: str, platforms: Sequence[str]) -> list[Section]:
    """One experiment's sections, the current platform's first."""
    return sorted((s for s in known if s.name == name), key=lambda s: platforms.index(s.platform))


def _masthead(current: Sequence[Result]) -> dict[str, Any]:
    return {
        "machine": from_facts(current[0].environment["machine"]).describe(),
        "platform": current[0].platform,
        "when": formatting.minute(max(r.finished for r in current)) + " UTC",
        "emulated": current[0].emulated,
        "counts": {status: sum(r.count(status) for r in current) for status in ("ok", "skipped", "failed")},
        "warnings": provenance.warnings(current),
        "num_experiments": len(current),
    }


def leading(current: Sequence[Section | Answer], most: int = NUM_LEADING) -> list[tuple[str, Finding]]:
    """(name, finding) pairs to act on: at most two per section or answer, the first kind first."""
    chosen = [(s.name, finding) for s in current for finding in s.by_topic[:2]]
    return sorted(chosen, key=lambda item: item[1].topic)[:most]


def _matrix_row(name: str, platforms: Sequence[str], own: Sequence[Section]) -> dict[str, Any]:
    headlines = {s.platform: s.headline for s in own}
    return {"name": name, "cells": [headlines.get(platform, "not measured") for platform in platforms]}


def _trend(history: Sequence[Path], figures: Path, platform: str) -> dict[str, Any]:
    """The kept nights of this platform; old ones that cannot be read are named and stop nothing."""
    return {**trend_section.page(of_indices(history, platform)), "figure": (figures / "trend.html").read_text("utf-8")}


def _panels(figures: Path, name: str, left_out: list[LeftOut]) -> str:
    """The figure of a section or an answer; if it could not be drawn, it is left out."""
    html = (figures / f"{name}.html").read_text("utf-8")
    if html == svg.MISSING:
        reason = f"it could not be drawn; see results/logs/figures/{name}.log"
        left_out.append(LeftOut(f"figure of {name}", reason, ours=True))
    return html


def _answer(answer: Answer, figures: Path, left_out: list[LeftOut]) -> dict[str, Any]:
    """What is said of the current platform."""
    return {
        "name": answer.name,
        "title": answer.title,
        "how_to_read": answer.how_to_read,
        **_figure(figures, answer.name, answer.title, answer.findings, left_out),
        "findings": answer.findings,
        "tables": answer.tables,
        "calculator": answer.calculator,
    }


def _page(
    name: str, own: Sequence[Section], figures: Path, current: str, traces: Sequence[Path], left_out: list[LeftOut]
) -> dict[str, Any]:
    """One experiment on every platform, for the template; findings are those of the first platform."""
    module, results = sections.load(name), [s.result for s in own]
    title = plugin_loader.title(module)
    return {
        "name": name,
        "title": title,
        "how_to_read": plugin_loader.how_to_read(module),
        **_figure(figures, name, title, own[0].findings, left_out),
        "caption": style.caption(results),
        "tiles": own[0].tiles,
        "topology": own[0].topology,
        "overview": own[0].overview,
        "findings": own[0].by_topic,
        "table": record_table.table(
            f"Cases with medians and intervals, {name}",
            {s.platform: s.rows for s in own},
            [s.platform for s in own[:1] if s.in_one_process],
        ),
        "judgements": own[0].judgements,
        "book": own[0].beside_the_book,
        "chapters": published_figures.chapters(name),
        "scale": own[0].scale_notes,
        "warnings": [(r.platform, warning) for r in results for warning in r.warnings],
        "states": [(s.platform, s.state) for s in own[:1] if s.state],
        "absent": [row for s in own for row in s.absent],
        "proofs": own[0].proofs,
        "published": own[0].published,
        "limits": [s.limit for s in own],
        "method": section.method(name),
        "settings": [(s.platform, s.settings) for s in own[:1]],
        "traces": _traces(name, traces),
        "raw": [s.raw for s in own if s.platform == current],
        "raw_elsewhere": [file_of(s.result) for s in own if s.platform != current],
    }


def _figure(
    figures: Path, name: str, title: str, findings: Sequence[Finding], left_out: list[LeftOut]
) -> dict[str, Any]:
    """A figure as the page shows it, what it says in words, and its files."""
    return {
        "figure": _panels(figures, name, left_out),
        "alt": f"Figure: {title} {findings[0].text if findings else ''}",
        "files": _files(figures, name),
    }


def _files(figures: Path, name: str) -> list[tuple[str, str]]:
    """(kind, link from the report) of a figure's files and of what it shows."""
    return [(kind.upper(), f"{figures.name}/{name}.{kind}") for kind in ("svg", "pdf", "png", "csv")]


def _traces(name: str, paths: Sequence[Path]) -> list[tuple[str, str]]:
    """(what, link) of an experiment's traces."""
    own = [path for path in paths if path.parent.name == name]
    return [(unquote_plus(Path(path.stem).stem), quote(path.as_posix())) for path in own]
