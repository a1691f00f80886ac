"""What config.yaml must say where the machine that runs the workflow is not the one that is measured."""

from typing import Any

import pytest
from scalecard.jobs.config import InvalidConfig, resolve
from support.blocks import CONFIG


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cluster": "slurm"}, "platform = auto: "),
        ({"cluster": "slurm", "platform": "a100"}, "scale = auto: "),
        ({"nodes": 2}, "nodes = 2: "),
        ({"cluster": "pbs"}, "cluster: 'pbs' is not one of ['none', 'slurm', 'kubernetes', 'generic']"),
    ],
)
def test_what_cannot_be_guessed_on_a_cluster_is_asked_for(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        resolve({**CONFIG, **changes}, check=False)
    assert expected in str(error.value)
