"""Run in a copy of the project: writes what `scalecard run` gets of the workflow at the scale of tests/smoke.yaml.

Into the folder named on the command line: machine.json, and the block of each experiment as <name>.block.
"""

import sys
from pathlib import Path

import scalecard
import yaml
from scalecard.jobs.config import resolve
from scalecard.jobs.inputs import write_machine
from snakemake.utils import update_config


def main(folder: Path) -> None:
    """Assert that the copy's own package is imported, not the one that is installed; then write the files."""
    imported = Path(scalecard.__file__)
    assert imported.is_relative_to(Path.cwd()), f"{imported} is imported, not the copy in {Path.cwd()}"
    config = yaml.safe_load(Path("config.yaml").read_text())
    update_config(config, yaml.safe_load(Path("tests/smoke.yaml").read_text()))
    settings = resolve(config, check=False)
    write_machine(folder / "machine.json", settings.machine)
    for name, block in settings.blocks.items():
        (folder / f"{name}.block").write_text(block)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
