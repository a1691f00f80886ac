"""What an edit of a file runs again, from the same imports as the inputs of the workflow's rules.

What depends on a value, such as a block of config.yaml, is no file's: `snakemake -n` says it.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalecard.hardware.machine import ROOT
from scalecard.jobs import inputs
from scalecard.jobs.source_code import experiment_names

Files = Mapping[str, set[str]]  # that each job reads, by its name


@dataclass(frozen=True)
class Reruns:
    """The experiments that are measured again after an edit of a file, and else what is drawn or written again."""

    file: str
    measured: list[str]
    drawn: list[str]

    def __str__(self) -> str:
        if self.measured:
            return f"{self.file}\n  measures again: {', '.join(self.measured)}; then draws and writes what shows them"
        return f"{self.file}\n  measures nothing again; draws or writes again: {', '.join(self.drawn) or 'nothing'}"


def reruns(files: Sequence[Path]) -> Iterator[Reruns]:
    """One for each file; ValueError if one is no file of the project."""
    paths = [_in_project(file) for file in files]
    with contextlib.chdir(ROOT):
        experiments, figures, others = _experiments(), _figures(), _others()
    for path in paths:
        others_again = [name for name, read in others.items() if path in read]
        figures_again = _readers(path, figures, "figure")
        yield Reruns(path, _readers(path, experiments, "experiment"), [*figures_again, *others_again])


def _in_project(file: Path) -> str:
    found = file.resolve()
    if not (found.is_file() and found.is_relative_to(ROOT)):
        raise ValueError(f"{file}: must be a file of the project")
    return str(found.relative_to(ROOT))


def _readers(path: str, jobs: Files, kind: str) -> list[str]:
    """One text for each job that reads the file, or for all."""
    names = [name for name, read in jobs.items() if path in read]
    return [f"every {kind}"] if len(names) == len(jobs) else names


def _experiments() -> Files:
    return {name: {*inputs.of_experiment(name), *inputs.of_image()} for name in experiment_names()}


def _figures() -> Files:
    drawn = {name: inputs.of_figure(name) for name in experiment_names()}
    drawn |= {name: inputs.of_answer(name) for name in inputs.answers()}
    return {f"the figure of {name}": set(files) for name, files in drawn.items()}


def _others() -> Files:
    return {
        "the figure of kept nights": set(inputs.of_trend()),
        "the exports": set(inputs.of_exports()),
        "the report": set(inputs.of_report()),
    }
