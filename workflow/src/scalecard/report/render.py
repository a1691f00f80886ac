"""Renders results as one HTML file that works offline.

Every word of the report comes from records, from the docstrings of sections and experiments, or from the reference
files. What is said about one result is computed in section.py; this module arranges it for the templates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

from scalecard.analysis import formatting, platforms, provenance, published_figures
from scalecard.analysis.platforms import (
    NO_SETTINGS,
    LeftOut,
    PlatformResults,
    Settings,
    attempt,
    by_reason,
    each_fit,
    file_of,
    gather,
    selection,
)
from scalecard.figures import style, svg
from scalecard.hardware.machine import from_facts
from scalecard.records.atomic import write_atomically
from scalecard.records.files import InvalidResult, refuse_mixed_machines
from scalecard.records.record import Result
from scalecard.report import (
    answers,
    changes_section,
    downloads,
    first_screen,
    pages,
    record_table,
    section,
    sections,
    textbook,
    toc,
    trend,
)
from scalecard.report.downloads import NO_DOWNLOADS, Downloads
from scalecard.report.pages import MISSING
from scalecard.report.section import Brief, Section, others_table
from scalecard.report.sections import Finding
from scalecard.report.table import Table

PROVENANCE = (
    "fingerprint",
    "torch",
    "torchvision",
    "cuda",
    "cudnn",
    "nccl",
    "nccl_process_group",
    "float32_products",
    "float32_convolutions",
    "python",
    "os",
    "container_engine",
    "container",
    "cpu_governor",
    "cgroup_cpu_max",
    "cgroup_memory_max",
)
NUM_LEADING = 8
NOT_SHOWN = ("devices", "data_dir")  # settings
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
        title, how_to_read = toc.docstring(module)
        return cls(
            name=name,
            title=title,
            how_to_read=how_to_read,
            findings=module.findings(measured),
            tables=[table.filled() for table in module.tables(measured) if table.rows],
            calculator=module.calculator(measured) if hasattr(module, "calculator") else {},
        )


def every_answer(results: Sequence[Result], settings: Settings, left_out: list[LeftOut]) -> list[Answer]:
    """The answers that the results of one platform allow; most of them rest on the strategies of several devices.

    One that cannot be computed is added to what is left out.
    """
    measured = platforms.current(results, settings)
    result = measured.of("strategies")
    if result is None:
        return []
    several = result.environment["machine"]["num_devices"] * max(1, len(result.environment["nodes"])) > 1
    names = answers.names() if several else answers.OF_ONE_DEVICE
    tried = [attempt(f"answer {name}", partial(Answer.of, name, measured), left_out) for name in names]
    return [answer for answer in tried if answer and (answer.findings or answer.tables)]


def write(
    paths: Sequence[Path],
    figures: Path,
    output: Path,
    show: Sequence[str] | None = None,
    history: Sequence[Path] = (),
    exports: Sequence[Path] = (),
    settings: Settings = NO_SETTINGS,
    archive: Path | None = None,
) -> list[LeftOut]:
    """Write the report of these result files, the current platform's first; return what is left out.

    Those of the `exports` are offered that could be written. The `archive` gets the report and what is beside it.
    """
    found = gather(paths)
    traces = sorted(paths[0].parent.glob("traces/*/*.json.gz"))
    there = [path for path in exports if path.read_bytes() != MISSING]
    left_out = [*found.left_out, *(LeftOut(p.name, NOT_WRITTEN, ours=True) for p in exports if p not in there)]
    names = {*(path.stem for path in paths), *answers.names(), *(["trend"] if history else [])}
    beside = downloads.by_folder([*downloads.figure_files(figures, names), *there, *traces], output)
    text = render(
        found.results,
        figures,
        show=show,
        left_out=left_out,
        history=history,
        available=Downloads(downloads.embedded(there), beside, archive.name if archive else ""),
        settings=settings,
    )
    write_atomically(output, text)
    if archive:
        downloads.write_archive(archive, output, beside)
    return left_out


def render(
    results: Sequence[Result],
    figures: Path,
    *,
    show: Sequence[str] | None = None,
    left_out: list[LeftOut] | None = None,
    history: Sequence[Path] = (),
    available: Downloads = NO_DOWNLOADS,
    settings: Settings = NO_SETTINGS,
) -> str:
    """The report; the first result's platform is the current one, and `show` names the platforms to draw.

    `figures` is the folder of the figures' panels. To `left_out` is added what cannot be said or was not drawn.
    `history` are the indices of kept nights, `available` what can be saved, and `settings` those of answers.
    ValueError: one platform, different hardware. InvalidResult: nothing can be said of the current one.
    """
    refuse_mixed_machines(results, "results")
    left_out = [] if left_out is None else left_out
    ours = [result for result in results if result.experiment in sections.names()]
    wanted = selection(ours, show)
    known, unfit = each_fit([r for r in ours if r.platform in wanted], Section.of, here=wanted[0])
    brief, unfit_elsewhere = each_fit([r for r in ours if r.platform not in wanted], Brief.of, here=wanted[0])
    left_out += [*unfit, *unfit_elsewhere]
    platforms = [platform for platform in wanted if any(s.platform == platform for s in known)]
    if platforms[:1] != wanted[:1]:
        raise InvalidResult(f"nothing can be said of {wanted[0]}", f"{unfit[0].what}: {unfit[0].reason}")
    known.sort(key=lambda s: platforms.index(s.platform))
    by_name = {name: [s for s in known if s.name == name] for name in toc.in_order({s.name for s in known})}
    values = {
        **_said_of_all(known, platforms, figures, settings, left_out),
        "unknown": sorted(set(show or ()) - {r.platform for r in ours}),
        "platforms": platforms,
        "matrix": [_matrix_row(name, platforms, own) for name, own in by_name.items()],
        "others": others_table(brief, list(by_name)),
        "trend": _trend(history, figures, platforms[0]) if history else None,
        "downloads": available,
        "sections": {name: _section(own, figures, platforms[0], available, left_out) for name, own in by_name.items()},
    }
    return pages.render("report.html.j2", left_out=by_reason(left_out), **values)


def _said_of_all(
    known: Sequence[Section], platforms: Sequence[str], figures: Path, settings: Settings, left_out: list[LeftOut]
) -> dict[str, Any]:
    """What no experiment has alone: the findings to begin with, the answers, what differs from others, and words."""
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
        "contents": toc.by_page([*(answer.name for answer in replies), *{s.name for s in known}], judged),
        "first": first_screen.of(current, left_out),
        "masthead": {
            "platform": platforms[0],
            "emulated": current[0].result.emulated,
            "warnings": provenance.warnings([s.result for s in current]),
            "trust": provenance.reasons_to_trust([s.result for s in current]),
        },
        "leading": leading([*current, *advised]),
        "answers": {
            answer.name: {**vars(answer), **_figure(figures, answer.name, answer.title, answer.findings, left_out)}
            for answer in replies
        },
        "changes": [part for part in changes if part],
        "glossary": textbook.glossary(),
        "provenance": [_environment([r for r in results if r.platform == platform]) for platform in platforms],
    }


def _matrix_row(name: str, platforms: Sequence[str], own: Sequence[Section]) -> dict[str, Any]:
    headlines = {s.platform: s.headline for s in own}
    return {"name": name, "cells": [headlines.get(platform, "not measured") for platform in platforms]}


def _trend(history: Sequence[Path], figures: Path, platform: str) -> dict[str, Any]:
    return {**trend.page(trend.of_indices(history, platform)), "figure": (figures / "trend.html").read_text("utf-8")}


def _environment(own: Sequence[Result]) -> dict[str, Any]:
    """The environment in which a platform was measured, fact by fact."""
    environment = own[0].environment
    machine = environment["machine"]
    # Of the first result that says how NCCL's channels go, and of the first that spans several nodes.
    paths: dict[str, int] = next(filter(None, (r.environment["nccl_paths"] for r in own)), {})
    nodes: list[dict[str, Any]] = next(filter(None, (r.environment["nodes"] for r in own)), [])
    channels = ", ".join(f"{count} by {path}" for path, count in paths.items())
    first, last = (formatting.minute(moment) for moment in (min(r.started for r in own), max(r.finished for r in own)))
    return {
        "platform": own[0].platform,
        "facts": {
            "machine": from_facts(machine).describe(),
            "driver": machine["driver"],
            "memory": formatting.count_bytes(environment["ram_bytes"]),
            "locked software": machine["software"],
            **({"further packages": added} if (added := environment.get("packages")) else {}),
            "commit": ", ".join(provenance.commits(own)),
            **{formatting.spaced(key): environment.get(key) for key in PROVENANCE},
            "measured": f"{first} to {last} UTC",
            **{
                f"GPU {index}": ", ".join(
                    f"{formatting.spaced(key)} {'not known' if value is None else value}" for key, value in gpu.items()
                )
                for index, gpu in enumerate(environment["gpus"])
            },
            **({"NCCL's channels": channels} if channels else {}),
            **{f"node {index}": _node(node) for index, node in enumerate(nodes)},
        },
        "missing": {formatting.spaced(key): reason for key, reason in environment["missing"].items()},
    }


def _node(node: dict[str, Any]) -> str:
    differs = [f"{formatting.spaced('.'.join(map(str, one['path'])))} {one['value']}" for one in node["differs"]]
    return f"host {node['host']}" + (f", other than node 0: {', '.join(differs)}" if differs else "")


def leading(current: Sequence[Section | Answer], most: int = NUM_LEADING) -> list[tuple[str, Finding]]:
    """(name, finding) pairs to act on: at most two per section or answer, the first kind first."""
    chosen = [(s.name, finding) for s in current for finding in sections.by_topic(s.findings)[:2]]
    return sorted(chosen, key=lambda item: item[1].topic)[:most]


def _section(
    own: Sequence[Section], figures: Path, current: str, available: Downloads, left_out: list[LeftOut]
) -> dict[str, Any]:
    """One experiment on every platform, for the template, which shows of the first one what is in its section."""
    name, results = own[0].name, [s.result for s in own]
    title, how_to_read = toc.docstring(sections.load(name))
    return {
        **vars(own[0]),
        "name": name,
        "title": title,
        "how_to_read": how_to_read,
        **_figure(figures, name, title, own[0].findings, left_out),
        "caption": style.caption(results),
        "findings": sections.by_topic(own[0].findings),
        "table": record_table.table(
            f"Cases with medians and intervals, {name}",
            {s.platform: s.rows for s in own},
            in_one_process=all(len(record.samples) == 1 for record in results[0].records if record.samples),
        ),
        "book": own[0].beside_the_book,
        "chapters": published_figures.chapters(name),
        "textbook": textbook.items(name),
        "pictures": textbook.pictures(name),
        "scale": own[0].scale_notes,
        "warnings": [(r.platform, warning) for r in results for warning in r.warnings],
        "states": [(own[0].platform, own[0].state)] if own[0].state else [],
        "absent": [row for s in own for row in s.absent],
        "published": own[0].published,
        "limits": [s.limit for s in own],
        "method": section.method(name),
        "settings": [(own[0].platform, {k: v for k, v in results[0].spec.items() if k not in NOT_SHOWN})],
        "traces": [
            unquote_plus(Path(Path(file).stem).stem) for file in available.files.get(f"{current}/traces/{name}", ())
        ],
        "raw": [s.raw for s in own if s.platform == current],
        "raw_elsewhere": [file_of(s.result) for s in own if s.platform != current],
    }


def _figure(
    figures: Path, name: str, title: str, findings: Sequence[Finding], left_out: list[LeftOut]
) -> dict[str, Any]:
    """A figure as the page shows it, and what it says in words; if it could not be drawn, it is left out."""
    html = (figures / f"{name}.html").read_text("utf-8")
    if html == svg.MISSING:
        reason = f"it could not be drawn; see results/logs/figures/{name}.log"
        left_out.append(LeftOut(f"figure of {name}", reason, ours=True))
    return {
        "figure": html,
        "alt": f"Figure: {title} {findings[0].text if findings else ''}",
    }
