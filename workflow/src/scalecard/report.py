"""From results to one HTML file that works offline: what the template shows, computed here.

Every word of the report comes from records, from the docstrings of sections and experiments, or from the reference
files; the template only arranges it. Sources of the experiments are read, not imported: that would need torch.
"""

import ast
import base64
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalecard import compare, compare_views, normal, pages, reference, schema, sections, state, tables, units
from scalecard.machine import from_facts
from scalecard.schema import Result
from scalecard.sections import Finding, style

EXPERIMENTS = Path(__file__).parent / "experiments"
NUM_LEADING = 8
PROVENANCE = (
    "fingerprint",
    "commit",
    "dirty",
    "torch",
    "torchvision",
    "cuda",
    "cudnn",
    "nccl",
    "python",
    "os",
    "container_engine",
    "container",
    "cpu_governor",
    "cgroup_cpu_max",
    "cgroup_memory_max",
)


def render(results: Sequence[Result], figures: Path) -> str:
    """The report over all experiments and platforms; the first result's platform is the current one.

    ValueError where results of one platform were measured on different hardware.
    """
    schema.refuse_mixed(results, "results")
    platforms = list(dict.fromkeys(r.platform for r in results))
    names = [name for name in dict.fromkeys(r.experiment for r in results) if name in sections.names()]
    current = [r for r in results if r.platform == platforms[0]]
    return pages.render(
        "report.html.j2",
        masthead=_masthead(current),
        leading=_leading(current),
        health=[judgement for result in current for judgement in normal.judge(result)],
        changes=[_changes(platform, current, results) for platform in platforms[1:]],
        platforms=platforms,
        matrix=[_matrix_row(name, platforms, results) for name in names],
        sections=[_section(name, _of(results, name, platforms), figures) for name in names],
        provenance=[_provenance(platform, results) for platform in platforms],
    )


def _of(results: Sequence[Result], name: str, platforms: Sequence[str]) -> list[Result]:
    return sorted((r for r in results if r.experiment == name), key=lambda r: platforms.index(r.platform))


def _masthead(current: Sequence[Result]) -> dict[str, Any]:
    records = [record for result in current for record in result.records]
    return {
        "machine": from_facts(current[0].environment["machine"]).describe(),
        "platform": current[0].platform,
        "when": _minute(max(r.finished for r in current)) + " UTC",
        "emulated": current[0].emulated,
        "counts": {status: sum(r.status == status for r in records) for status in ("ok", "skipped", "failed")},
        "warnings": [text for _, text in compare.warnings("", current)],
        "num_experiments": len(current),
    }


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _leading(current: Sequence[Result]) -> list[tuple[str, Finding]]:
    """The findings to act on: at most two of a section, the smallest priorities first."""
    chosen: list[tuple[str, Finding]] = []
    for result in current:
        found = sorted(sections.load(result.experiment).findings([result]), key=lambda f: f.priority)
        chosen += [(result.experiment, finding) for finding in found[:2]]
    return sorted(chosen, key=lambda item: item[1].priority)[:NUM_LEADING]


def _matrix_row(name: str, platforms: Sequence[str], results: Sequence[Result]) -> dict[str, Any]:
    cells = []
    for platform in platforms:
        found = [r for r in results if r.experiment == name and r.platform == platform]
        findings = sorted(sections.load(name).findings(found), key=lambda f: f.priority) if found else []
        headlines = [finding.headline for finding in findings if finding.headline]
        cells.append(headlines[0] if headlines else "not measured")
    return {"name": name, "title": _title(name), "cells": cells}


def _changes(platform: str, current: Sequence[Result], results: Sequence[Result]) -> dict[str, Any]:
    """What differs from another platform to this one, and what that did."""
    other = [r for r in results if r.platform == platform]
    try:
        found = compare.compare(other, current)
    except ValueError as error:
        said = compare.changes(other[0].environment, current[0].environment)
        return {"platform": platform, "headline": str(error), "changes": said, "rows": []}
    told = [row for row in found.rows if row.verdict in ("slower", "faster", "not compared")]
    return {
        "platform": platform,
        "headline": compare_views.headline(found),
        "changes": found.changes,
        "notes": compare_views.notes(found)[1:],
        "head": compare_views.HEAD,
        "rows": [compare_views.cells(row) for row in told],
    }


def _doc(name: str) -> tuple[str, str]:
    first, _, rest = (sections.load(name).__doc__ or name).partition("\n")
    return first.strip(), " ".join(rest.split())


def _title(name: str) -> str:
    return _doc(name)[0]


def _section(name: str, results: Sequence[Result], figures: Path) -> dict[str, Any]:
    title, how_to_read = _doc(name)
    found = sections.load(name).findings(results)
    return {
        "name": name,
        "title": title,
        "how_to_read": how_to_read,
        "figure": _figure(figures / f"{name}.svg"),
        "alt": f"Figure: {title} {found[0].text if found else ''}",
        "caption": style.caption(results),
        "findings": found,
        "table": tables.measured(results),
        "judgements": [(r.platform, judgement) for r in results for judgement in normal.judge(r)],
        "warnings": [(r.platform, w) for r in results for w in r.warnings],
        "states": [(r.platform, rows) for r in results if (rows := state.overview(r))],
        "one_process": [r.platform for r in results if all(len(x.processes) == 1 for x in r.records if x.samples)],
        "absent": tables.absent(results),
        "checks": tables.checks(results),
        "published": _published(name, results[0]),
        "limits": [_limit(result) for result in results],
        "method": _method(name),
        "specs": [(r.platform, {k: v for k, v in r.spec.items() if k not in ("devices", "data_dir")}) for r in results],
        "raw": [_raw(result) for result in results],
    }


def _figure(path: Path) -> str:
    """The SVG without its XML prologue; its ids are made the figure's own, because several share one page."""
    text = path.read_text()
    text = text[text.index("<svg") :]
    own = f"{path.stem}-"
    for mark in ('id="', 'xlink:href="#', "url(#"):
        text = text.replace(mark, mark + own)
    return text


def _published(name: str, result: Result) -> dict[str, Any]:
    module = sections.load(name)
    ours = module.published(result) if hasattr(module, "published") else {}
    synthetic = any(record.case.get("data") == "synthetic" for record in result.records)
    entries = reference.published(name)
    shown = [e for e in entries if not (synthetic and e.metric == "test_accuracy")]
    return {
        "entries": [{**asdict(e), "ours": normal.ours_beside(e, ours)} for e in shown],
        "hidden_accuracies": len(entries) - len(shown),
        "same_workload": bool(ours),
    }


def _limit(result: Result) -> dict[str, Any]:
    device = style.device_name(result)
    spec = reference.gpu_spec(device)
    return {"platform": result.platform, "device": device, "spec": asdict(spec) if spec else None}


def _method(name: str) -> list[str]:
    """The paragraphs of the experiment's docstring."""
    tree = ast.parse((EXPERIMENTS / f"{name}.py").read_text())
    return [" ".join(part.split()) for part in (ast.get_docstring(tree) or "").split("\n\n")[1:]]


def _raw(result: Result) -> dict[str, str]:
    text = json.dumps(asdict(result), separators=(",", ":"))
    return {
        "file": f"{result.platform}-{result.experiment}.json",
        "href": f"data:application/json;base64,{base64.b64encode(text.encode()).decode()}",
    }


def _provenance(platform: str, results: Sequence[Result]) -> dict[str, Any]:
    own = [r for r in results if r.platform == platform]
    environment = own[0].environment
    commits = sorted({str(r.environment["commit"])[:12] + ("+changes" if r.environment["dirty"] else "") for r in own})
    facts = {key.replace("_", " "): environment.get(key) for key in PROVENANCE if key not in ("commit", "dirty")}
    machine = environment["machine"]
    return {
        "platform": platform,
        "facts": {
            "machine": from_facts(machine).describe(),
            "driver": machine["driver"],
            "memory": units.count_bytes(environment["ram_bytes"]),
            "locked software": machine["software"],
            "commit": ", ".join(commits),
            **facts,
            "measured": f"{_minute(min(r.started for r in own))} to {_minute(max(r.finished for r in own))} UTC",
        },
        "gpus": environment["gpus"],
        "missing": environment["missing"],
    }
