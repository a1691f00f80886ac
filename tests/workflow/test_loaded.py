"""What a process has loaded when it has measured, and so what its experiment depends on."""

import json
from pathlib import Path

import pytest
from scalecard import experiments
from scalecard.jobs import inputs

pytestmark = pytest.mark.workflow
OF_THE_COMMAND = {"workflow/src/scalecard/cli/commands.py"}  # which calls what is measured, and says nothing to it


@pytest.mark.parametrize("name", experiments.names())
def test_an_experiment_depends_on_what_is_loaded_when_it_was_measured(measured: Path, name: str) -> None:
    """Also on what is imported late."""
    written = list((measured.parent / "loaded").glob(f"{name}-*.json"))
    assert written
    loaded = {Path(file).relative_to(measured).as_posix() for path in written for file in json.loads(path.read_text())}
    assert loaded - OF_THE_COMMAND - set(map(str, inputs.NO_INPUTS)) == set(inputs.of_experiment(name))
