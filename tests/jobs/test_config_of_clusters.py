"""What config.yaml must say where the machine that runs the workflow is not the one that is measured."""

import json
from typing import Any

import pytest
from scalecard.jobs.config import InvalidConfig, resolve
from support.blocks import CONFIG


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cluster": "slurm"}, "platform = auto: "),
        ({"cluster": "slurm", "platform": "a100"}, "scale = auto: "),
        ({"nodes": 2}, "nodes = 2: several need `snakemake --workflow-profile slurm`, or the other machines in hosts"),
        ({"hosts": ["b"], "nodes": 3}, 'nodes = 3: with this machine and ["b"] in hosts, accepted: 2, or 1'),
        ({"hosts": ["b"], "cluster": "slurm"}, 'hosts = ["b"]: only without a scheduler (cluster: none)'),
        ({"hosts": ["b", "b"]}, "hosts: ['b', 'b'] has non-unique elements; accepted: a list of at most 1000 names"),
        ({"hosts": ["-oProxyCommand=reboot"]}, "accepted: the name of a machine, as ssh takes it"),
        ({"cluster": "pbs"}, "cluster: 'pbs' is not one of ['none', 'slurm', 'kubernetes', 'generic']"),
    ],
)
def test_what_cannot_be_guessed_on_a_cluster_is_asked_for(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        resolve({**CONFIG, **changes}, check=False)
    assert expected in str(error.value)


@pytest.mark.parametrize("nodes", [1, 3])
def test_this_machine_and_each_host_is_a_node(nodes: int) -> None:
    settings = resolve({**CONFIG, "hosts": ["b", "me@c"], "nodes": nodes}, check=False)
    assert (settings.nodes["allreduce"], settings.nodes["pipeline"]) == (3, 1)
    assert json.loads(settings.blocks["allreduce"])["nodes"] == 3
