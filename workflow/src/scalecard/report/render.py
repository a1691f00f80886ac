"""Renders results as one HTML file that works offline.

Every word of the report comes from records, from the docstrings of sections and experiments, or from the reference
files. What is said about one result is computed in section.py; this module arranges it for the templates.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scalecard.hardware.machine import from_facts
from scalecard.records.atomic import write_atomically
from scalecard.records.files import refuse_mixed_machines
from scalecard.records.record import Result
from scalecard.report import answered, contents, modules, pages, section, sections, style, tables, units
from scalecard.report.answered import Answer
from scalecard.report.answers import NO_SETTINGS, Settings
from scalecard.report.brief import Brief, others_table
from scalecard.report.comparison import compare, views
from scalecard.report.drawn import drawn
from scalecard.report.exports.provenance import commits
from scalecard.report.gather import UNFIT, LeftOut, by_reason, each_fit, file_of, gather
from scalecard.report.history import views as nights
from scalecard.report.history.trend import of_indices
from scalecard.report.section import Section
from scalecard.report.sections import Finding

NUM_LEADING = 8
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


def write(
    paths: Sequence[Path],
    figures: Path,
    output: Path,
    show: Sequence[str] | None = None,
    history: Sequence[Path] = (),
    exports: Sequence[Path] = (),
    settings: Settings = NO_SETTINGS,
) -> None:
    """Write the report of these result files, the current platform's first; what is left out is printed too."""
    found, links = gather(paths), [Path(os.path.relpath(path, output.parent)).as_posix() for path in exports]
    traces = sorted(paths[0].parent.glob("traces/*/*.json.gz"))
    linked = [path.relative_to(output.parent) for path in traces if path.is_relative_to(output.parent)]
    options: dict[str, Any] = {"left_out": found.left_out, "history": history, "traces": linked, "exports": links}
    write_atomically(output, render(found.results, figures, show=show, settings=settings, **options))


def render(
    results: Sequence[Result],
    figures: Path,
    *,
    show: Sequence[str] | None = None,
    left_out: Sequence[LeftOut] = (),
    history: Sequence[Path] = (),
    traces: Sequence[Path] = (),
    exports: Sequence[str] = (),
    settings: Settings = NO_SETTINGS,
) -> str:
    """The report over all experiments and platforms; the first result's platform is the current one.

    `figures` is the folder of the SVG files, `show` names the platforms to draw, `left_out` the files that could not be
    used, `history` the indices of kept nights, `traces` those of the current platform, relative to the report, and
    `exports` links to its tables. `settings` are those of answers. ValueError if results of one platform are of
    different hardware.
    """
    refuse_mixed_machines(results, "results")
    ours = [result for result in results if result.experiment in sections.names()]
    platforms = drawn(ours, show)
    chosen = [result for result in ours if result.platform in platforms]
    known, unfit = each_fit(chosen, Section.of, here=platforms[0])
    brief, unfit_too = each_fit((r for r in ours if r.platform not in platforms), Brief.of, here=platforms[0])
    unused = [*left_out, *unfit, *unfit_too]
    _tell(unused)
    platforms = [platform for platform in platforms if any(s.platform == platform for s in known)]
    by_name = {name: _of(known, name, platforms) for name in contents.in_order({s.name for s in known})}
    return pages.render(
        "report.html.j2",
        left_out=by_reason(unused),
        unknown=sorted(set(show or ()) - {r.platform for r in ours}),
        platforms=platforms,
        matrix=[_matrix_row(name, platforms, own) for name, own in by_name.items()],
        others=others_table(brief, list(by_name)),
        trend=_trend(history, figures, platforms[0]) if history else None,
        sections=[_page(name, own, figures, platforms[0], traces) for name, own in by_name.items()],
        exports=exports,
        **_said_of_all(known, platforms, figures, settings),
    )


def _said_of_all(
    known: Sequence[Section], platforms: Sequence[str], figures: Path, settings: Settings
) -> dict[str, Any]:
    """What rests on several experiments: the findings to begin with, the answers, and what differs from others."""
    results, current = [s.result for s in known], [s for s in known if s.platform == platforms[0]]
    replies = answered.every([s.result for s in current], settings)
    advised = [] if results[0].emulated else replies
    troubled = {s.name for s in current if any(judgement.is_trouble for judgement in s.judgements)}
    return {
        "contents": contents.grouped([*(answer.name for answer in replies), *{s.name for s in known}], troubled),
        "masthead": _masthead([s.result for s in current]),
        "health": [judgement for s in current for judgement in s.judgements],
        "leading": leading([*current, *advised]),
        "answers": [_answer(answer, figures) for answer in replies],
        "changes": [_changes(platform, results) for platform in platforms[1:]],
        "provenance": [_provenance(platform, results) for platform in platforms],
    }


def _tell(unused: Sequence[LeftOut]) -> None:
    for each in unused:
        print(each)


def _of(known: Sequence[Section], name: str, platforms: Sequence[str]) -> list[Section]:
    """One experiment's sections, the current platform's first."""
    return sorted((s for s in known if s.name == name), key=lambda s: platforms.index(s.platform))


def _masthead(current: Sequence[Result]) -> dict[str, Any]:
    return {
        "machine": from_facts(current[0].environment["machine"]).describe(),
        "platform": current[0].platform,
        "when": units.minute(max(r.finished for r in current)) + " UTC",
        "emulated": current[0].emulated,
        "counts": {status: sum(r.count(status) for r in current) for status in ("ok", "skipped", "failed")},
        "warnings": [text for _, text in compare.warnings("", current)],
        "num_experiments": len(current),
    }


def leading(current: Sequence[Section | Answer], most: int = NUM_LEADING) -> list[tuple[str, Finding]]:
    """(name, finding) pairs to act on: at most two per section or answer, the smallest priority first."""
    chosen = [(s.name, finding) for s in current for finding in s.by_priority[:2]]
    return sorted(chosen, key=lambda item: item[1].priority)[:most]


def _matrix_row(name: str, platforms: Sequence[str], own: Sequence[Section]) -> dict[str, Any]:
    headlines = {s.platform: s.headline for s in own}
    return {"name": name, "cells": [headlines.get(platform, "not measured") for platform in platforms]}


def _changes(platform: str, results: Sequence[Result]) -> dict[str, Any]:
    """What differs between another platform and the current one, and its effect."""
    current = [r for r in results if r.platform == results[0].platform]
    other = [r for r in results if r.platform == platform]
    try:
        found = compare.compare(other, current)
    except UNFIT as error:
        changes = compare.changes(other[0].environment, current[0].environment)
        return {"platform": platform, "headline": str(error), "changes": changes, "rows": []}
    shown = [row for row in found.rows if row.verdict in ("slower", "faster", "not compared")]
    return {
        "platform": platform,
        "headline": views.headline(found),
        "changes": found.changes,
        "notes": views.notes(found)[1:],
        "head": views.HEAD,
        "rows": [views.cells(row) for row in shown],
    }


def _trend(history: Sequence[Path], figures: Path, platform: str) -> dict[str, Any]:
    """The kept nights of this platform; old ones that cannot be read are named and stop nothing."""
    return {**nights.page(of_indices(history, platform)), "figure": _figure(figures / "trend.svg")}


def _answer(answer: Answer, figures: Path) -> dict[str, Any]:
    """What is said of the current platform."""
    return {
        "name": answer.name,
        "title": answer.title,
        "how_to_read": answer.how_to_read,
        "figure": _figure(figures / f"{answer.name}.svg"),
        "alt": f"Figure: {answer.title} {answer.findings[0].text if answer.findings else ''}",
        "findings": answer.findings,
        "tables": answer.tables,
        "calculator": answer.calculator,
    }


def _page(name: str, own: Sequence[Section], figures: Path, current: str, traces: Sequence[Path]) -> dict[str, Any]:
    """One experiment on every platform, for the template; findings are those of the first platform."""
    module, results = sections.load(name), [s.result for s in own]
    title = modules.title(module)
    return {
        "name": name,
        "title": title,
        "how_to_read": modules.how_to_read(module),
        "figure": _figure(figures / f"{name}.svg"),
        "alt": f"Figure: {title} {own[0].findings[0].text if own[0].findings else ''}",
        "caption": style.caption(results),
        "tiles": own[0].tiles,
        "topology": own[0].topology,
        "overview": own[0].overview,
        "findings": own[0].findings,
        "table": tables.joined({s.platform: s.cells for s in own}),
        "judgements": [(s.platform, judgement) for s in own for judgement in s.judgements],
        "warnings": [(r.platform, warning) for r in results for warning in r.warnings],
        "states": [(s.platform, s.state) for s in own if s.state],
        "one_process": [s.platform for s in own if s.in_one_process],
        "absent": [row for s in own for row in s.absent],
        "proofs": [proof for s in own for proof in s.proofs],
        "published": own[0].published,
        "limits": [s.limit for s in own],
        "method": section.method(name),
        "settings": [(s.platform, s.settings) for s in own],
        "traces": _traces(name, traces),
        "raw": [s.raw for s in own if s.platform == current],
        "raw_elsewhere": [file_of(s.result) for s in own if s.platform != current],
    }


def _traces(name: str, paths: Sequence[Path]) -> list[tuple[str, str]]:
    """(what, link) of an experiment's traces."""
    own = [path for path in paths if path.parent.name == name]
    return [(path.name.removesuffix(".json.gz").replace("-", " "), quote(path.as_posix())) for path in own]


def _figure(path: Path) -> str:
    """The SVG without its XML prologue; its ids get a prefix, because several figures share one page."""
    text = path.read_text("utf-8")
    text = text[text.index("<svg") :]
    prefix = f"{path.stem}-"
    for mark in ('id="', 'xlink:href="#', "url(#"):
        text = text.replace(mark, mark + prefix)
    return text


def _provenance(platform: str, results: Sequence[Result]) -> dict[str, Any]:
    own = [r for r in results if r.platform == platform]
    environment = own[0].environment
    machine = environment["machine"]
    first, last = (units.minute(moment) for moment in (min(r.started for r in own), max(r.finished for r in own)))
    return {
        "platform": platform,
        "facts": {
            "machine": from_facts(machine).describe(),
            "driver": machine["driver"],
            "memory": units.count_bytes(environment["ram_bytes"]),
            "locked software": machine["software"],
            **({"further packages": added} if (added := environment.get("packages")) else {}),
            "commit": ", ".join(commits(own)),
            **{key.replace("_", " "): environment.get(key) for key in PROVENANCE},
            "measured": f"{first} to {last} UTC",
            **{f"GPU {index}": _in_words(gpu) for index, gpu in enumerate(environment["gpus"])},
            **_nccl(own),
            **{f"node {index}": _node(node) for index, node in enumerate(_nodes(own))},
        },
        "missing": {key.replace("_", " "): reason for key, reason in environment["missing"].items()},
    }


def _in_words(facts: dict[str, Any]) -> str:
    known = {key.replace("_", " "): "not known" if value is None else value for key, value in facts.items()}
    return ", ".join(f"{key} {value}" for key, value in known.items())


def _nodes(own: Sequence[Result]) -> list[dict[str, Any]]:
    """Those of the first result that spans several."""
    return next((nodes for result in own if (nodes := result.environment["nodes"])), [])


def _node(node: dict[str, Any]) -> str:
    differs = ", ".join(f"{path.replace('_', ' ')} {value}" for path, value in node["differs"].items())
    return f"host {node['host']}" + (f", other than node 0: {differs}" if differs else "")


def _nccl(own: Sequence[Result]) -> dict[str, str]:
    """How NCCL's channels go, of the first result that says so."""
    known: list[dict[str, int]] = [result.environment["nccl_paths"] for result in own]
    paths = next(filter(None, known), {})
    return {"NCCL's channels": ", ".join(f"{count} by {path}" for path, count in paths.items())} if paths else {}
